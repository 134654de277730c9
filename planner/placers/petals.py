"""Petals: every node joins where the served throughput is least (Borzunov et al., Helix §6.6)."""

from planner.capacity import longest_ranges, throughput_tokens_per_s
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem


def place_petals(problem: Problem) -> Placement | None:
    """Nodes join in inventory order, each with as many layers as it can hold.

    A node takes the window whose layers, sorted by the throughput that already serves them, come
    first: the layer worst served counts most. Windows overlap freely, so the flow needs partial
    inference. None when no node can hold a layer.
    """
    served_tokens_per_s = [0.0] * problem.model.num_layers
    layers: dict[str, LayerRange] = {}
    for node in problem.cluster.nodes:
        window = min(
            longest_ranges(problem, node.name),
            key=lambda one: sorted(served_tokens_per_s[one.first : one.end]),
            default=None,
        )
        if window is None:
            continue
        layers[node.name] = window
        for layer in range(window.first, window.end):
            served_tokens_per_s[layer] += throughput_tokens_per_s(problem, node.name, len(window))
    return Placement(layers=layers) if layers else None
