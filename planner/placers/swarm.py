"""Swarm: equal stages, every node to the stage with the least throughput (Helix §6.2)."""

from planner.capacity import fits, max_layers, throughput_tokens_per_s
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.base import equal_split


def place_swarm(problem: Problem) -> Placement | None:
    """The fewest equal stages of which the weakest node can hold one; strong nodes choose first.

    Where that makes more stages than there are nodes, the weakest nodes are left out until the
    rest can hold the model. None when no number of nodes can.
    """
    num_layers = problem.model.num_layers
    limits = {node.name: max_layers(problem, node.name) for node in problem.cluster.nodes}
    for weakest in sorted({limit for limit in limits.values() if limit > 0}):
        names = [name for name, limit in limits.items() if limit >= weakest]
        num_stages = -(-num_layers // weakest)
        if len(names) >= num_stages:
            return _fill_stages(problem, names, equal_split(num_layers, num_stages))
    return None


def _fill_stages(problem: Problem, names: list[str], stages: list[LayerRange]) -> Placement:
    longest = max(len(stage) for stage in stages)
    strongest_first = sorted(
        names, key=lambda name: throughput_tokens_per_s(problem, name, longest), reverse=True
    )
    stage_throughput = [0.0] * len(stages)
    stage_nodes = [0] * len(stages)
    layers: dict[str, LayerRange] = {}
    for name in strongest_first:
        # Empty stages first, also where a node's throughput is 0: every stage gets a node.
        weakest = min(
            (number for number, stage in enumerate(stages) if fits(problem, name, stage)),
            key=lambda stage: (stage_throughput[stage], stage_nodes[stage]),
            default=None,
        )
        if weakest is None:
            continue
        layers[name] = stages[weakest]
        stage_nodes[weakest] += 1
        stage_throughput[weakest] += throughput_tokens_per_s(problem, name, len(stages[weakest]))
    return Placement(layers=layers)
