"""Whether an alert fires: holds for a while, hysteresis, flapping. No queries.

A reading is bad past the threshold, good once it is back past `clears_at`; between the two nothing
changes. What is not read any more (the node was removed, nothing is served) counts as good.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helixweb.alerting.models import Alert, AlertRule

# An alert that fires again within this time flaps; each time it must be good for longer to end.
FLAPS_WITHIN = timedelta(minutes=15)
MOST_DOUBLINGS = 5
LONGEST_RESOLVE_S = 1800.0


class State(StrEnum):
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


def resolve_after(flaps: int, rule: "AlertRule") -> timedelta:
    """How long readings must be good to end an alert that came back `flaps` times."""
    doubled = max(rule.resolve_s, 1.0 if flaps else 0.0) * 2.0 ** min(flaps, MOST_DOUBLINGS)
    return timedelta(seconds=max(rule.resolve_s, min(doubled, LONGEST_RESOLVE_S)))


def begin(alert: "Alert", value: float, *, before: "Alert | None", now: datetime) -> bool:
    """Start a new alert; False if there is none. `before` is the subject's last one, now over."""
    if not alert.rule.is_bad(value):
        return False
    alert.state, alert.since, alert.flaps = State.PENDING.value, now, 0
    if before is not None and before.resolved_at is not None:
        alert.flaps = before.flaps + 1 if now - before.resolved_at <= FLAPS_WITHIN else 0
    _fire_if_due(alert, now)
    return True


def follow(alert: "Alert", value: float | None, *, now: datetime) -> bool:
    """Change an open alert by one more reading; False: it never fired, and is to be deleted."""
    is_bad = value is not None and alert.rule.is_bad(value)
    is_good = value is None or alert.rule.is_good(value)
    if alert.state == State.PENDING:
        _fire_if_due(alert, now)
        return is_bad or not is_good
    if not is_good:
        alert.good_since = None
        return True
    alert.good_since = alert.good_since or now
    if now - alert.good_since >= resolve_after(alert.flaps, alert.rule):
        alert.state, alert.resolved_at = State.RESOLVED.value, now
    return True


def _fire_if_due(alert: "Alert", now: datetime) -> None:
    if now - alert.since >= timedelta(seconds=alert.rule.for_s):
        alert.state, alert.fired_at = State.FIRING.value, now
