"""Kinds of alert rules, and the default rules of a cluster. Pure.

A reading is worse the further it is past the rule's threshold, above it or, for what runs out,
below it.
"""

from enum import StrEnum
from typing import Any, NamedTuple

from django.db import models
from django.utils.translation import gettext_lazy


class Kind(models.TextChoices):
    """The value that a rule watches; see `readings.py`."""

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
    """The side of the threshold on which a reading is bad."""

    ABOVE = "above"
    BELOW = "below"


class Defaults(NamedTuple):
    """A rule as a cluster begins with it. `unit` is of the threshold and of readings.

    It fires when readings were bad for `for_s`; it is over when they were good, by `clears_at`, for
    `resolve_s`.
    """

    unit: str
    threshold: float
    clears_at: float
    for_s: float
    resolve_s: float
    severity: Severity = Severity.WARNING
    bad: Bad = Bad.ABOVE

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of the rule's row."""
        values = self._asdict()
        return {name: values[name] for name in values if name not in ("unit", "bad")}


_DAY_S = 86_400
DEFAULTS: dict[Kind, Defaults] = {
    # unit, threshold, clears at, fires after s, is over after s
    Kind.NODE_LOST: Defaults("s", 15, 10, 0, 20, Severity.CRITICAL),
    Kind.COORDINATOR_LOST: Defaults("s", 15, 10, 0, 20, Severity.CRITICAL),
    Kind.DEPLOYMENT_FAILED: Defaults("", 0.5, 0.5, 10, 10, Severity.CRITICAL),
    Kind.PLAN_STALE: Defaults("s", 3600, 3600, 0, 0),
    Kind.TTFT: Defaults("s", 5, 4, 120, 120),
    Kind.ITL: Defaults("s", 0.5, 0.4, 120, 120),
    Kind.WAITING: Defaults("requests", 0, 0, 300, 60),
    Kind.KV_PROMISED: Defaults("ratio", 0.95, 0.9, 60, 60),
    Kind.LINK_SLOW: Defaults("ratio", 0.2, 0.1, 60, 60),
    Kind.KEY_EXPIRES: Defaults("s", 7 * _DAY_S, 7 * _DAY_S, 0, 0, bad=Bad.BELOW),
    Kind.CERTIFICATE_EXPIRES: Defaults("s", 14 * _DAY_S, 14 * _DAY_S, 0, 0, bad=Bad.BELOW),
}
