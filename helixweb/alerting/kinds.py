"""What a rule may watch, and the rules that a cluster begins with. Pure.

A reading is worse the further it is past the rule's threshold, above it or, for what runs out,
below it.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy


class Kind(models.TextChoices):
    """What is read; see `readings.py`."""

    NODE_LOST = "node_lost", gettext_lazy("node lost")
    COORDINATOR_LOST = "coordinator_lost", gettext_lazy("coordinator lost")
    DEPLOYMENT_FAILED = "deployment_failed", gettext_lazy("deployment failed or degraded")
    PLAN_STALE = "plan_stale", gettext_lazy("plan stale")
    TTFT = "ttft_p95", gettext_lazy("TTFT above target")
    ITL = "itl_p95", gettext_lazy("inter-token latency above target")
    WAITING = "requests_waiting", gettext_lazy("requests wait")
    KV_PROMISED = "kv_promised", gettext_lazy("KV cache above the mark")
    LINK_SLOW = "link_slow", gettext_lazy("link slow")
    KEY_EXPIRES = "key_expires", gettext_lazy("API key or join token expires")
    CERTIFICATE_EXPIRES = "certificate_expires", gettext_lazy("certificate expires")


class Severity(models.TextChoices):
    WARNING = "warning", gettext_lazy("warning")
    CRITICAL = "critical", gettext_lazy("critical")


class Bad(StrEnum):
    """On which side of the threshold a reading is bad."""

    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """A rule as a cluster begins with it. `unit` is of the threshold and of readings.

    It fires when readings were bad for `for_s`; it is over when they were good, by `clears_at`, for
    `resolve_s`.
    """

    unit: str
    threshold: float
    clears_at: float
    for_s: float
    resolve_s: float
    severity: Severity
    bad: Bad = Bad.ABOVE

    @property
    def columns(self) -> dict[str, Any]:
        """Of the rule's row."""
        return {key: value for key, value in asdict(self).items() if key not in ("unit", "bad")}


DEFAULTS: dict[Kind, Defaults] = {
    Kind.NODE_LOST: Defaults(
        unit="s", threshold=15, clears_at=10, for_s=0, resolve_s=20, severity=Severity.CRITICAL
    ),
    Kind.COORDINATOR_LOST: Defaults(
        unit="s", threshold=15, clears_at=10, for_s=0, resolve_s=20, severity=Severity.CRITICAL
    ),
    Kind.DEPLOYMENT_FAILED: Defaults(
        unit="", threshold=0.5, clears_at=0.5, for_s=10, resolve_s=10, severity=Severity.CRITICAL
    ),
    Kind.PLAN_STALE: Defaults(
        unit="s", threshold=3600, clears_at=3600, for_s=0, resolve_s=0, severity=Severity.WARNING
    ),
    Kind.TTFT: Defaults(
        unit="s", threshold=5, clears_at=4, for_s=120, resolve_s=120, severity=Severity.WARNING
    ),
    Kind.ITL: Defaults(
        unit="s", threshold=0.5, clears_at=0.4, for_s=120, resolve_s=120, severity=Severity.WARNING
    ),
    Kind.WAITING: Defaults(
        unit="requests", threshold=0, clears_at=0, for_s=300, resolve_s=60,
        severity=Severity.WARNING,
    ),
    Kind.KV_PROMISED: Defaults(
        unit="ratio", threshold=0.95, clears_at=0.9, for_s=60, resolve_s=60,
        severity=Severity.WARNING,
    ),
    Kind.LINK_SLOW: Defaults(
        unit="ratio", threshold=0.2, clears_at=0.1, for_s=60, resolve_s=60,
        severity=Severity.WARNING,
    ),
    Kind.KEY_EXPIRES: Defaults(
        unit="s", threshold=7 * 86_400, clears_at=7 * 86_400, for_s=0, resolve_s=0,
        severity=Severity.WARNING, bad=Bad.BELOW,
    ),
    Kind.CERTIFICATE_EXPIRES: Defaults(
        unit="s", threshold=14 * 86_400, clears_at=14 * 86_400, for_s=0, resolve_s=0,
        severity=Severity.WARNING, bad=Bad.BELOW,
    ),
}  # fmt: skip
