"""Which of the nodes to be drained requests can do without; each answer is found once."""

from collections import deque
from collections.abc import Mapping

from planner.routers.base import Hop
from planner.routers.leading_past import leads_past

# A plan asks for two by turns: as if none were silent, and without those that are.
_REMEMBERED = 2

_Question = tuple[frozenset[str], frozenset[str], frozenset[Hop], Mapping[str, Mapping[str, float]]]


class Sparing:
    """Finds drained nodes that requests can do without; a `Serving` calls it.

    It is asked for every request that waits, whenever one ends, and searches a graph per node:
    so the last answers are kept.
    """

    def __init__(self) -> None:
        self._answers: deque[tuple[_Question, frozenset[str]]] = deque(maxlen=_REMEMBERED)

    def spared(
        self,
        draining: frozenset[str],
        *,
        silent: frozenset[str],
        weights: Mapping[str, Mapping[str, float]],
        cut: frozenset[Hop],
    ) -> frozenset[str]:
        """As many of `draining`, in the order of their names, as leave a way around all of them,
        `silent` nodes and `cut` hops."""
        if not draining:
            return frozenset()
        question = (silent, draining, cut, weights)
        for asked, answer in self._answers:
            if asked == question:
                return answer
        spared: frozenset[str] = frozenset()
        for node in sorted(draining):
            if leads_past(silent | spared | {node}, weights=weights, cut=cut):
                spared |= {node}
        self._answers.append((question, spared))
        return spared
