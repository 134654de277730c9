"""Routes a request from source to sink; each vertex chooses the next one independently."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from planner.domain.cluster import SINK, SOURCE
from planner.domain.pipeline import Pipeline
from planner.routers.base import Hop, RequestSize, Router
from planner.routers.hops import Hops


class Turns(Protocol):
    """Chooses among the successors of one vertex in turn."""

    def take(self, open_candidates: Sequence[str]) -> str:
        """One of `open_candidates`, which is a non-empty part of all."""

    def take_over(self, before: "Turns") -> None:
        """Continue the turns of the same vertex in the previous plan.

        Candidates that are new get no credit for missed turns. Turns of another kind are ignored.
        """


TurnsMaker: TypeAlias = Callable[[Mapping[str, float]], Turns]


class WalkRouter(Router):
    """Follows open hops; a vertex with several of them asks its turns, with one it has no choice.

    `turns_of` makes a vertex's turns of the weights of its successors.
    """

    def __init__(self, hops: Hops, turns_of: TurnsMaker) -> None:
        super().__init__(hops)
        self.turns: Mapping[str, Turns] = {
            source: turns_of(targets) for source, targets in hops.weights.items()
        }

    def choose(
        self, size: RequestSize, *, masked: Collection[str] = (), cut: Collection[Hop] = ()
    ) -> Pipeline | None:
        """The next pipeline; None when no route avoids full and `masked` nodes and `cut` hops."""
        hops = self._hops.open_now(size, masked=masked, cut=cut)
        if not hops[SOURCE]:
            return None
        nodes: list[str] = []
        vertex = SOURCE
        while (following := self.turns[vertex].take(hops[vertex])) != SINK:
            nodes.append(following)
            vertex = following
        return self._hops.pipeline(nodes)

    def take_over(self, before: Router) -> None:
        """Continue the turns of another plan's router, at every vertex that both have."""
        if isinstance(before, WalkRouter):
            for vertex in self.turns.keys() & before.turns.keys():
                self.turns[vertex].take_over(before.turns[vertex])
