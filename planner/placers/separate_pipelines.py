"""Separate pipelines: one replica of the model for each kind of machine (Helix §6.2, "SP")."""

from collections.abc import Sequence

from planner.capacity import layer_limits
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.replicas import dealt_out


def place_separate_pipelines(problem: Problem) -> Placement | None:
    """An equal split of all layers over the nodes of each compute profile, in inventory order."""
    by_profile = problem.cluster.names_by(lambda node: node.compute_profile)
    return dealt_out(problem, by_profile.values(), most_copies=lambda _: 1)


def place_separate_pipelines_plus(problem: Problem) -> Placement | None:
    """Separate pipelines, and one more of all nodes that are in none (Helix §6.2, "SP+").

    The last one's nodes hold layers in proportion to what they could. None where they cannot hold
    the model together: there is nothing to add then.
    """
    separate = place_separate_pipelines(problem)
    layers = dict(separate.layers) if separate is not None else {}
    left = [node.name for node in problem.cluster.nodes if node.name not in layers]
    stages = _stages_of(left, problem)
    if stages is None:
        return None
    parts = separate.components or (frozenset(layers),) if separate is not None else ()
    components = (*parts, frozenset(stages))
    return Placement(
        layers={**layers, **stages}, components=components if len(components) > 1 else ()
    )


def _stages_of(names: Sequence[str], problem: Problem) -> dict[str, LayerRange] | None:
    """A stage for each node, its end rounded up from its share; None where they hold too little.

    The first and the last stage are on the first nodes with room for that end of the model.
    """
    num_layers = problem.model.num_layers
    limits = {name: layer_limits(problem, name) for name in names}
    head = next((name for name in names if limits[name].first > 0), None)
    tail = next((name for name in reversed(names) if limits[name].last > 0 and name != head), None)
    if head is None or (tail is None and limits[head].both < num_layers):
        return None
    names = [head, *(name for name in names if name not in (head, tail))]
    most = [limits[head].first, *(limits[name].middle for name in names[1:])]
    if tail is not None:
        names.append(tail)
        most.append(limits[tail].last)
    whole = sum(most)
    if whole < num_layers:
        return None
    stages: dict[str, LayerRange] = {}
    held, first = 0, 0
    for name, count in zip(names, most, strict=True):
        held += count
        end = -(-num_layers * held // whole)
        if end > first:
            stages[name] = LayerRange(first=first, end=end)
            first = end
    return stages
