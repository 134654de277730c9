"""Helix's router: interleaved weighted round robin at every vertex of the flow (Helix §5.1)."""

from collections.abc import Collection, Mapping

from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.pipeline import Pipeline, PipelineStage
from planner.domain.placement import Placement
from planner.routers.base import RequestSize
from planner.routers.kv_estimator import KvEstimator


class InterleavedWeightedRoundRobin:
    """Turns among weighted candidates, spread evenly and without randomness.

    Each turn every open candidate earns its share and the taken one pays 1. Among those with
    something earned the earliest deadline goes first, which keeps every candidate within one
    turn of its share. A closed candidate earns nothing, so that it cannot swallow the traffic
    when it opens again.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = {name: weight for name, weight in weights.items() if weight > 0}
        self._credit = dict.fromkeys(self._weights, 0.0)

    @property
    def candidates(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def take(self, open_candidates: Collection[str]) -> str:
        """The candidate whose turn it is; `open_candidates` is a non-empty part of all."""
        total = sum(self._weights[name] for name in open_candidates)
        for name in open_candidates:
            self._credit[name] += self._weights[name] / total
        earned = [name for name in open_candidates if self._credit[name] > 1e-9]
        taken = min(
            earned or open_candidates,
            key=lambda name: ((1.0 - self._credit[name]) / self._weights[name], name),
        )
        self._credit[taken] -= 1.0
        return taken


class IwrrRouter:
    """Walks from source to sink, each vertex's round robin choosing the next hop.

    A hop runs the layers from where the request is to the end of the node's range; with partial
    inference it may enter in the middle. Nodes without KV room and hops from which the sink is
    then out of reach are closed before the walk, so a route is found whenever there is one.
    """

    def __init__(
        self,
        *,
        routing_weights: Mapping[str, Mapping[str, float]],
        placement: Placement,
        num_layers: int,
        partial_inference: bool,
        kv: KvEstimator,
    ) -> None:
        """Raises InvalidPlacement for weights on a hop that the placement does not allow."""
        self._placement = placement
        self._layers = placement.layers
        self._num_layers = num_layers
        self._kv = kv
        for source, targets in routing_weights.items():
            for target in targets:
                self._check_hop(source, target, partial_inference=partial_inference)
        self._turns = {
            source: InterleavedWeightedRoundRobin(targets)
            for source, targets in routing_weights.items()
        }

    def choose(self, size: RequestSize, *, masked: Collection[str] = ()) -> Pipeline | None:
        """The next pipeline by weight; None when no route avoids full and `masked` nodes."""
        hops = self._open_hops(size, masked=masked, when_idle=False)
        if not hops[SOURCE]:
            return None
        stages: list[PipelineStage] = []
        vertex, position = SOURCE, 0
        while (following := self._turns[vertex].take(hops[vertex])) != SINK:
            end = self._layers[following].end
            stages.append(PipelineStage(node=following, first=position, end=end))
            vertex, position = following, end
        return Pipeline(stages=tuple(stages))

    def can_ever_serve(self, size: RequestSize) -> bool:
        """Whether some route has room for the request once every node is idle."""
        return bool(self._open_hops(size, masked=(), when_idle=True)[SOURCE])

    def _open_hops(
        self, size: RequestSize, *, masked: Collection[str], when_idle: bool
    ) -> dict[str, list[str]]:
        """For every vertex the hops that have room and lead to the sink."""
        has_room = self._kv.would_have_room if when_idle else self._kv.has_room
        hops: dict[str, list[str]] = {SINK: [SINK]}

        def explore(vertex: str) -> list[str]:
            if vertex not in hops:
                position = 0 if vertex == SOURCE else self._layers[vertex].end
                turns = self._turns.get(vertex)
                hops[vertex] = [
                    target
                    for target in (turns.candidates if turns else ())
                    if target == SINK
                    or (
                        target not in masked
                        and has_room(
                            target, size=size, num_layers=self._layers[target].end - position
                        )
                        and explore(target)
                    )
                ]
            return hops[vertex]

        explore(SOURCE)
        return hops

    def _check_hop(self, source: str, target: str, *, partial_inference: bool) -> None:
        """Helix §4.3: s_j <= e_i < e_j with partial inference, e_i = s_j without."""
        for vertex, role in ((source, SOURCE), (target, SINK)):
            if vertex != role and vertex not in self._layers:
                raise InvalidPlacement(
                    f"routing weight {source} -> {target}: {vertex!r} holds no layers; "
                    "weights must join nodes of the placement, source and sink"
                )
        position = 0 if source == SOURCE else self._layers[source].end
        if target == SINK:
            if position != self._num_layers:
                raise InvalidPlacement(
                    f"routing weight {source} -> {target}: the request has run {position} of "
                    f"{self._num_layers} layers there; only a node ending at the last layer "
                    "leads to the sink"
                )
            return
        if source != SOURCE:
            ours, theirs = map(self._placement.component_of, (source, target))
            if ours != theirs:
                raise InvalidPlacement(
                    f"routing weight {source} -> {target}: they are in components {ours} and "
                    f"{theirs}, which serve apart; weights must stay within a component"
                )
        held = self._layers[target]
        enters = held.first <= position < held.end if partial_inference else held.first == position
        if not enters:
            rule = "within" if partial_inference else "at the start of"
            raise InvalidPlacement(
                f"routing weight {source} -> {target}: the request comes for layer {position} but "
                f"{target!r} holds {held}; it must enter {rule} that range"
            )
