"""Converts chosen patterns to stages of whole nodes, and these to a placement."""

from collections.abc import Sequence

from planner.bounds.node_kinds import NodeKind
from planner.domain.placement import LayerRange, Placement
from planner.placers.patterns import StageNodes, StagePattern


def stage_tokens_per_s(kinds: list[NodeKind], stage: StageNodes) -> float:
    """Joint tokens/s of its nodes; nodes that cannot hold as many layers count as 0."""
    return sum(kinds[kind].tokens_per_s.get(stage.layers, 0.0) for kind in stage.kinds)


def filled_stages(
    kinds: list[NodeKind], chosen: Sequence[StagePattern], *, num_layers: int
) -> tuple[StageNodes, ...]:
    """Stages whose lengths add up to the model's, in the given order.

    Layers too many come off where that leaves the slowest stage fastest; then idle nodes join the
    slowest stage, as long as one can.
    """
    stages = [
        StageNodes(
            layers=pattern.layers,
            kinds=tuple(kind for kind, count in pattern.counts for _ in range(count)),
            family=pattern.family,
        )
        for pattern in chosen
    ]
    for _ in range(sum(stage.layers for stage in stages) - num_layers):
        stages = max(
            (_one_layer_less(stages, position) for position in range(len(stages))),
            key=lambda shorter: _worst_first(kinds, shorter),
        )
    return tuple(_with_idle_nodes(kinds, stages))


def placement_of_stages(kinds: list[NodeKind], stages: Sequence[StageNodes]) -> Placement:
    """One stage after the other; every node of a stage holds all of it."""
    waiting = [list(kind.names) for kind in kinds]
    layers: dict[str, LayerRange] = {}
    first = 0
    for stage in stages:
        for kind in stage.kinds:
            layers[waiting[kind].pop(0)] = LayerRange(first=first, end=first + stage.layers)
        first += stage.layers
    return Placement(layers=layers)


def _one_layer_less(stages: list[StageNodes], position: int) -> list[StageNodes]:
    stage = stages[position]
    shorter = StageNodes(layers=stage.layers - 1, kinds=stage.kinds, family=stage.family)
    kept = [shorter] if shorter.layers else []
    return stages[:position] + kept + stages[position + 1 :]


def _worst_first(kinds: list[NodeKind], stages: list[StageNodes]) -> tuple[float, ...]:
    """Sort key: the slowest stage, then the next, and so on."""
    return tuple(sorted(stage_tokens_per_s(kinds, stage) for stage in stages))


def _with_idle_nodes(kinds: list[NodeKind], stages: list[StageNodes]) -> list[StageNodes]:
    idle = [kind.count for kind in kinds]
    for stage in stages:
        for kind in stage.kinds:
            idle[kind] -= 1
    while True:
        position = min(
            range(len(stages)), key=lambda place: stage_tokens_per_s(kinds, stages[place])
        )
        slowest = stages[position]
        helpful = [
            kind
            for kind, left in enumerate(idle)
            if left > 0 and kinds[kind].tokens_per_s.get(slowest.layers, 0.0) > 0
        ]
        if not helpful:
            return stages
        kind = max(helpful, key=lambda number: kinds[number].tokens_per_s[slowest.layers])
        idle[kind] -= 1
        stages[position] = StageNodes(
            layers=slowest.layers, kinds=(*slowest.kinds, kind), family=slowest.family
        )
