"""Swarm's routing: shares by the throughput that was measured lately (Helix §6.7)."""

from collections.abc import Mapping, Sequence

from planner.domain.cluster import SINK
from planner.routers.base import LoadView
from planner.routers.walk import Turns


class SwarmTurns:
    """Chooses the candidate that was given least work, measured in the time it needs for it.

    A turn adds the inverse of its measured throughput to a candidate's work. One that was closed or
    is new starts level with the others, without credit for missed turns. Candidates that have not
    served yet count as fast as the fastest, so that they are tried. Until anything is measured, all
    turns count the same; they are forgotten then, as they have no unit of time.
    """

    def __init__(self, candidates: Mapping[str, float], load: LoadView) -> None:
        self._load = load
        self._next_at = dict.fromkeys(candidates, 0.0)
        self._now = 0.0
        self._has_measured = False

    def take(self, open_candidates: Sequence[str]) -> str:
        """The candidate that is free first."""
        taken = min(open_candidates, key=lambda name: (max(self._now, self._next_at[name]), name))
        self._now = max(self._now, self._next_at[taken])
        self._next_at[taken] = self._now + self._cost(taken)
        return taken

    def take_over(self, before: Turns) -> None:
        """Keep how far each candidate was ahead."""
        if isinstance(before, SwarmTurns):
            for name in self._next_at.keys() & before._next_at.keys():
                self._next_at[name] = max(0.0, before._next_at[name] - before._now)

    def _cost(self, name: str) -> float:
        measured = {
            other: rate
            for other in self._next_at
            if other != SINK and (rate := self._load.tokens_per_s(other))
        }
        if measured and not self._has_measured:
            self._has_measured = True
            self._next_at = dict.fromkeys(self._next_at, self._now)
        return 1.0 / measured.get(name, max(measured.values(), default=1.0))
