"""The router of `docs/extend/router.md`: to where each request gets most tokens per second."""

from collections.abc import Sequence

from planner.domain.cluster import SINK
from planner.routers.base import LoadView
from planner.routers.walk import Turns

UNKNOWN_TOKENS_PER_S = 1000.0  # of a node that nothing has passed yet: it gets a try


class MostPerRequest:
    """The turns of one vertex: to the successor with most tokens per second for each request."""

    def __init__(self, load: LoadView) -> None:
        self._load = load

    def take(self, open_candidates: Sequence[str]) -> str:
        return max(open_candidates, key=self._share)

    def take_over(self, before: Turns) -> None:
        """The load is read at each turn; nothing has to be kept from the plan before."""

    def _share(self, node: str) -> float:
        if node == SINK:
            return float("inf")
        rate = self._load.tokens_per_s(node)
        return (rate or UNKNOWN_TOKENS_PER_S) / (1 + self._load.in_flight(node))
