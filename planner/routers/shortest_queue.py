"""Shortest queue first (the baseline of Helix §6.7)."""

from collections.abc import Mapping, Sequence

from planner.domain.cluster import SINK
from planner.routers.base import LoadView
from planner.routers.walk import Turns


class ShortestQueue:
    """Chooses the shortest queue; among equals the fewest running requests, then the one that was
    chosen longest ago."""

    def __init__(self, candidates: Mapping[str, float], load: LoadView) -> None:
        self._load = load
        self._last_turn = dict.fromkeys(candidates, 0)
        self._turn = 0

    def take(self, open_candidates: Sequence[str]) -> str:
        """The candidate with the shortest queue."""
        taken = min(open_candidates, key=self._length)
        self._turn += 1
        self._last_turn[taken] = self._turn
        return taken

    def take_over(self, before: Turns) -> None:
        """Does nothing: queues are read at every turn."""

    def _length(self, name: str) -> tuple[int, int, int]:
        if name == SINK:
            return (0, 0, 0)
        return (self._load.queued(name), self._load.in_flight(name), self._last_turn[name])
