"""The most even of all maximum flows, and the routing weights that it gives.

Which of the many maximum flows a method returns changes what is served: a sparse one pairs nodes
into private chains, whose requests then travel together as convoys. Here every node of a placement
carries the same share of its capacity as far as the maximum flow allows, and what leaves a node
is spread over its successors by what they carry: f_uv = f_u f_v / F between whole stages. Where
links or shared bandwidth are too narrow for that, the flow is the nearest to it that fits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.domain.cluster import SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.even_flow import even_flow
from planner.flow_graph import Floats, FlowGraph, Gate, build_flow_graph, gates_of
from planner.max_flow import max_flow, routing_weights
from planner.twins import merge_twins


def balanced_flow(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
) -> Flow:
    """`max_flow` with the same value and minimum cut, but spread most evenly.

    Raises InvalidPlacement.
    """
    maximum = max_flow(problem, placement, partial_inference=partial_inference, max_hops=max_hops)
    if maximum.value_tokens_per_s <= 0:
        return maximum
    graph = build_flow_graph(
        problem, placement, partial_inference=partial_inference, max_hops=max_hops
    )
    gates = gates_of(problem, graph)
    merged = merge_twins(graph, gates)
    maximum_M = np.bincount(
        merged.edge_of_E, _flows_of(maximum, graph), minlength=len(merged.graph.tails)
    ).astype(np.float64)
    flow_M = even_flow(merged.graph, merged.gates, maximum.value_tokens_per_s, maximum_M)
    return _with_flows(maximum, graph, gates, flow_M[merged.edge_of_E] / merged.sizes_E)


def balanced_weights(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
    component_shares: Sequence[float] | None = None,
) -> dict[str, dict[str, float]]:
    """Routing weights in tokens/s of the balanced flow: weights[u][v], SOURCE to SINK.

    `component_shares`, one for each of the placement's components, replace the components' shares
    of the flow among the source's weights. Raises InvalidPlacement.
    """
    flow = balanced_flow(problem, placement, partial_inference=partial_inference, max_hops=max_hops)
    weights = routing_weights(flow)
    if component_shares is None:
        return weights
    return with_component_shares(weights, placement, component_shares)


def with_component_shares(
    weights: Mapping[str, Mapping[str, float]], placement: Placement, shares: Sequence[float]
) -> dict[str, dict[str, float]]:
    """The weights with the source's divided among components by `shares`; within one as before.

    Only the shares' ratios matter. A component without weight gets none. Raises InvalidPlacement.
    """
    count = max(1, len(placement.components))
    if len(shares) != count or any(share < 0 for share in shares) or not sum(shares) > 0:
        raise InvalidPlacement(
            f"component shares are {list(shares)}; give {count} numbers of 0 or more, one for each "
            "component of the placement, and one above 0"
        )
    entering = weights.get(SOURCE, {})
    own = [0.0] * count
    for name, weight in entering.items():
        own[placement.component_of(name)] += weight
    unit = sum(own) / sum(shares)
    shared = {
        name: weight / own[component] * shares[component] * unit
        for name, weight in entering.items()
        for component in (placement.component_of(name),)
    }
    changed = {source: dict(targets) for source, targets in weights.items()}
    changed[SOURCE] = {name: weight for name, weight in shared.items() if weight > 0}
    return changed


def _flows_of(flow: Flow, graph: FlowGraph) -> Floats:
    """Tokens/s of every edge of the graph."""
    carried = {(edge.source, edge.target): edge.flow_tokens_per_s for edge in flow.edges}
    return np.array(
        [
            *(flow.nodes[name].flow_tokens_per_s for name in graph.names),
            *(carried[ends] for ends in graph.ends_of_connections()),
        ]
    )


def _with_flows(maximum: Flow, graph: FlowGraph, gates: tuple[Gate, ...], flow_E: Floats) -> Flow:
    count = len(graph.names)
    flow_of = dict(zip(graph.ends_of_connections(), flow_E[count:].tolist(), strict=True))
    through = dict(zip(graph.names, flow_E.tolist(), strict=False))
    used = {gate.name: float(gate.bytes_per_token_E @ flow_E) for gate in gates}
    return replace(
        maximum,
        edges=tuple(
            replace(edge, flow_tokens_per_s=flow_of[edge.source, edge.target])
            for edge in maximum.edges
        ),
        nodes={
            name: replace(node, flow_tokens_per_s=through[name])
            for name, node in maximum.nodes.items()
        },
        shared=tuple(
            replace(shared, used_bytes_per_s=used[shared.name]) for shared in maximum.shared
        ),
    )
