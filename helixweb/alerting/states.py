"""Whether an alert fires: holds for a while, hysteresis, flapping. Pure; times are seconds.

A reading is bad past the threshold, good once it is back past `clears_at`; between the two nothing
changes. What is not read any more (the node was removed, nothing is served) counts as good.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from helixweb.alerting.kinds import Bad

# Who fires again so soon after it was over flaps, and must then be good for longer each time.
FLAPS_WITHIN_S = 900.0
MOST_DOUBLINGS = 5
LONGEST_RESOLVE_S = 1800.0


class State(StrEnum):
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a rule."""

    threshold: float
    clears_at: float
    for_s: float
    resolve_s: float
    bad: Bad

    def is_bad(self, value: float) -> bool:
        return value > self.threshold if self.bad is Bad.ABOVE else value < self.threshold

    def is_good(self, value: float) -> bool:
        return value <= self.clears_at if self.bad is Bad.ABOVE else value >= self.clears_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An alert. `since_s`: bad since then; `good_since_s`: good since then, None: it is not.

    `flaps`: how often it came back soon after it was over.
    """

    state: State
    since_s: float
    good_since_s: float | None = None
    resolved_s: float | None = None
    flaps: int = 0

    def resolve_after_s(self, limits: Limits) -> float:
        """How long readings must be good."""
        doubled = max(limits.resolve_s, 1.0 if self.flaps else 0.0) * 2.0 ** min(
            self.flaps, MOST_DOUBLINGS
        )
        return max(limits.resolve_s, min(doubled, LONGEST_RESOLVE_S))


def begin(
    value: float, limits: Limits, *, before: Standing | None, now_s: float
) -> Standing | None:
    """An alert where there is none open; `before` is the last one, which is over.

    None: there is nothing to tell.
    """
    if not limits.is_bad(value):
        return None
    flaps = 0
    if before is not None and before.resolved_s is not None:
        soon = now_s - before.resolved_s <= FLAPS_WITHIN_S
        flaps = before.flaps + 1 if soon else 0
    standing = Standing(state=State.PENDING, since_s=now_s, flaps=flaps)
    return _fire_if_due(standing, limits, now_s=now_s)


def follow(
    standing: Standing, value: float | None, limits: Limits, *, now_s: float
) -> Standing | None:
    """An open alert after one more reading; None: it never fired, and is forgotten."""
    if value is not None and limits.is_bad(value):
        return _fire_if_due(replace(standing, good_since_s=None), limits, now_s=now_s)
    is_good = value is None or limits.is_good(value)
    if standing.state is State.PENDING:
        return None if is_good else _fire_if_due(standing, limits, now_s=now_s)
    if not is_good:
        return replace(standing, good_since_s=None)
    good_since_s = now_s if standing.good_since_s is None else standing.good_since_s
    if now_s - good_since_s >= standing.resolve_after_s(limits):
        return replace(standing, state=State.RESOLVED, good_since_s=good_since_s, resolved_s=now_s)
    return replace(standing, good_since_s=good_since_s)


def _fire_if_due(standing: Standing, limits: Limits, *, now_s: float) -> Standing:
    if standing.state is State.PENDING and now_s - standing.since_s >= limits.for_s:
        return replace(standing, state=State.FIRING)
    return standing
