"""The router of Helix's published prototype, which differs from the paper's (Helix §5.1).

Every successor has a load, the tokens sent there over its flow, and the one whose load would be
least with the prompt is next. The prototype adds decodes as they come; here those expected count
when the request is let in. Successors with less than 5 % of a vertex's flow are never taken. It
does not look ahead: a request that comes to a vertex whose successors are all full is not let in.
Only vertices that could not serve the request even in an idle cluster are avoided from the start,
so that they are not tried for ever.
"""

from collections.abc import Collection, Mapping

from planner.domain.cluster import SINK, SOURCE
from planner.domain.pipeline import Pipeline
from planner.routers.base import Hop, RequestSize, Router
from planner.routers.hops import Hops

_LEAST_SHARE = 0.05


class PublishedRouter(Router):
    """Least normalised load at every vertex."""

    def __init__(self, hops: Hops) -> None:
        """`hops` must have weights filtered by `with_enough_flow`."""
        super().__init__(hops)
        self.loads = {
            source: dict.fromkeys(targets, 0.0) for source, targets in hops.weights.items()
        }

    def choose(
        self, size: RequestSize, *, masked: Collection[str] = (), cut: Collection[Hop] = ()
    ) -> Pipeline | None:
        """The next pipeline; None, and no load added, when the walk meets a full vertex."""
        ever_open = self._hops.open_when_idle(size)
        path: list[tuple[str, str]] = []
        vertex = SOURCE
        while vertex != SINK:
            after = {
                target: load + size.prompt_tokens / self._hops.weights[vertex][target]
                for target, load in self.loads.get(vertex, {}).items()
                if target in ever_open[vertex]
                and target not in masked
                and (vertex, target) not in cut
                and self._hops.has_room(vertex, target, size)
            }
            if not after:
                return None
            following = min(after, key=after.__getitem__)
            path.append((vertex, following))
            vertex = following
        for source, target in path:
            self.loads[source][target] += size.total_tokens / self._hops.weights[source][target]
        return self._hops.pipeline([target for _, target in path[:-1]])

    def take_over(self, before: Router) -> None:
        """Continue with loads minus the least; new vertices get the mean (the prototype: zero)."""
        if not isinstance(before, PublishedRouter):
            return
        for source in self.loads.keys() & before.loads.keys():
            known = {
                target: load
                for target, load in before.loads[source].items()
                if target in self.loads[source]
            }
            if known:
                least, mean = min(known.values()), sum(known.values()) / len(known)
                for target in self.loads[source]:
                    self.loads[source][target] = known.get(target, mean) - least


def with_enough_flow(
    routing_weights: Mapping[str, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """The weights without successors that the prototype never takes."""
    return {
        source: {
            target: weight
            for target, weight in targets.items()
            if weight > 0 and weight >= _LEAST_SHARE * sum(targets.values())
        }
        for source, targets in routing_weights.items()
    }
