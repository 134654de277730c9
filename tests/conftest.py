"""What every test shares: no deadlines on generated examples, and the same ones in CI each time."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "helixweb",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("helixweb")
