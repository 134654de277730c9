"""Petals: every node joins where the served throughput is least (Borzunov et al., Helix §6.6)."""

from planner.capacity import max_layers, throughput_tokens_per_s
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
        held = max_layers(problem, node.name)
        if held == 0:
            continue
        starts = range(problem.model.num_layers - held + 1)
        first = min(starts, key=lambda start: sorted(served_tokens_per_s[start : start + held]))
        layers[node.name] = LayerRange(first=first, end=first + held)
        for layer in range(first, first + held):
            served_tokens_per_s[layer] += throughput_tokens_per_s(problem, node.name, held)
    return Placement(layers=layers) if layers else None
