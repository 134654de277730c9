"""The hops that routing weights name: checked once, and which of them are open now."""

from collections.abc import Collection, Mapping

from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.pipeline import Pipeline, PipelineStage
from planner.domain.placement import Placement
from planner.routers.base import Hop, RequestSize
from planner.routers.kv_estimator import KvEstimator


class Hops:
    """The routes of a plan, from source to sink within one component of the placement.

    A hop runs the layers from where the request is to the end of the node's range; with partial
    inference it may enter in the middle.
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
        self.weights = routing_weights
        self._placement = placement
        self._layers = placement.layers
        self._num_layers = num_layers
        self._kv = kv
        for source, targets in routing_weights.items():
            for target in targets:
                self._check(source, target, partial_inference=partial_inference)
        # Searched for every request: the hops with the layers run at their end, and those home.
        self._home: dict[str, tuple[str, ...]] = {SINK: (SINK,)}
        self._successors: dict[str, tuple[tuple[str, int], ...]] = {}
        for source, targets in routing_weights.items():
            if SINK in targets:
                self._home[source] = (SINK,)
                continue
            position = self._position(source)
            self._successors[source] = tuple(
                (target, self._layers[target].end - position) for target in targets
            )
        # Every hop leads to a later layer, so each vertex comes before all that follow it.
        self._in_order = sorted(self._successors, key=self._position)
        self._stages: dict[tuple[str, int], PipelineStage] = {}

    def open_now(
        self, size: RequestSize, *, masked: Collection[str] = (), cut: Collection[Hop] = ()
    ) -> dict[str, tuple[str, ...]]:
        """For every reachable vertex, its successors that have KV room and lead to the sink.

        Nodes without room and hops from which the sink is then unreachable are left out, so that a
        path along open hops always arrives, and a full component does not affect others.
        """
        return self._open(size, masked=masked, cut=cut, rooms=self._kv.rooms)

    def open_when_idle(self, size: RequestSize) -> dict[str, tuple[str, ...]]:
        """The same if every node were idle; nothing behind SOURCE means that waiting is in vain."""
        return self._open(size, masked=(), cut=(), rooms=self._kv.rooms_when_idle)

    def has_room(self, source: str, target: str, size: RequestSize) -> bool:
        """Whether `target` has KV room for a request that comes from `source`."""
        return target == SINK or self._kv.has_room(
            target, size=size, num_layers=self._layers[target].end - self._position(source)
        )

    def pipeline(self, nodes: Collection[str]) -> Pipeline:
        """The stages of a request that visits these nodes in order."""
        stages: list[PipelineStage] = []
        position = 0
        for node in nodes:
            stage = self._stages.get((node, position))
            if stage is None:
                stage = PipelineStage(node=node, first=position, end=self._layers[node].end)
                self._stages[node, position] = stage
            stages.append(stage)
            position = stage.end
        return Pipeline(stages=tuple(stages))

    def _position(self, vertex: str) -> int:
        """The layer that a request needs next when it leaves `vertex`."""
        return 0 if vertex == SOURCE else self._layers[vertex].end

    def _open(
        self,
        size: RequestSize,
        *,
        masked: Collection[str],
        cut: Collection[Hop],
        rooms: Mapping[str, float],
    ) -> dict[str, tuple[str, ...]]:
        tokens = self._kv.reserved_tokens(size)
        reached = {SOURCE}
        allowed: list[tuple[str, list[str]]] = []
        for vertex in self._in_order:
            if vertex not in reached:
                continue
            targets = [
                target
                for target, num_layers in self._successors[vertex]
                if tokens * num_layers <= rooms[target]
                and target not in masked
                and not (cut and (vertex, target) in cut)
            ]
            reached.update(targets)
            allowed.append((vertex, targets))
        hops = self._home.copy()
        for vertex, targets in reversed(allowed):
            hops[vertex] = tuple(target for target in targets if hops.get(target))
        hops.setdefault(SOURCE, ())
        return hops

    def _check(self, source: str, target: str, *, partial_inference: bool) -> None:
        """Helix §4.3: s_j <= e_i < e_j with partial inference, e_i = s_j without."""
        for vertex, role in ((source, SOURCE), (target, SINK)):
            if vertex != role and vertex not in self._layers:
                raise InvalidPlacement(
                    f"routing weight {source} -> {target}: {vertex!r} holds no layers; "
                    "weights must join nodes of the placement, source and sink"
                )
        position = self._position(source)
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
