"""Maximum flow and minimum cut of a placement by preflow-push (Helix §4.3).

Where bandwidth is shared and preflow-push, which knows nothing of it, exceeds some, the linear
program decides; its prices take the place of the cut.
"""

from collections.abc import Mapping

import networkx as nx
from networkx.algorithms.flow import preflow_push

from planner.domain.cluster import SINK, SOURCE
from planner.domain.flow import EdgeFlow, Flow, MinCut, NodeFlow, Price, SharedFlow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.flow_graph import (
    FlowGraph,
    Gate,
    Vertex,
    build_flow_graph,
    edges_with_capacity,
    gates_of,
    name_of,
)
from planner.linear_flow import LinearFlow, solve_linear_flow

# Preflow-push pushes excess until it is exactly zero, which floats do not reach: 0.1 + 0.2 - 0.3
# stays behind as flow that never arrives. So capacities are rounded down to integer multiples of
# 2**-30 tokens/s (1e-9), far below any measurement; Python's integers do not overflow.
UNITS_PER_TOKEN = 2**30


def max_flow(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
) -> Flow:
    """The max flow of a placement in tokens/s, per connection and node, with a minimum cut.

    `max_hops` leaves out connections that make pipelines longer (`planner.flow_graph`). The same
    placement gives the same flow in every process. Raises InvalidPlacement.
    """
    graph = build_flow_graph(
        problem, placement, partial_inference=partial_inference, max_hops=max_hops
    )
    gates = gates_of(problem, graph)
    flow = _by_preflow_push(graph, gates)
    if all(shared.used_bytes_per_s <= shared.bandwidth_bytes_per_s for shared in flow.shared):
        return flow
    return _from_linear_flow(graph, gates, solve_linear_flow(graph, gates))


def _by_preflow_push(graph: FlowGraph, gates: tuple[Gate, ...]) -> Flow:
    """The max flow if bandwidth were not shared, and what it takes of the shared one."""
    vertices = sorted(graph, key=_sort_key)
    number_of = {vertex: number for number, vertex in enumerate(vertices)}
    source, sink = number_of[SOURCE], number_of[SINK]
    # Numbered vertices, because preflow-push iterates over sets: strings hash differently in every
    # process, and which of the many maximum flows comes out would change with them.
    numbered: nx.DiGraph[int] = nx.DiGraph()
    numbered.add_nodes_from(range(len(vertices)))
    for tail, head, capacity in edges_with_capacity(graph):
        numbered.add_edge(
            number_of[tail], number_of[head], capacity=int(capacity * UNITS_PER_TOKEN)
        )
    residual = preflow_push(numbered, source, sink)
    reachable = _reachable_in_residual(residual, source)
    # The residual network leaves out edges without capacity (a node with T_j = 0).
    flow_of = {
        (tail, head): (
            residual[number_of[tail]][number_of[head]]["flow"] / UNITS_PER_TOKEN
            if residual.has_edge(number_of[tail], number_of[head])
            else 0.0
        )
        for tail, head in graph.edges()
    }
    return Flow(
        value_tokens_per_s=residual.graph["flow_value"] / UNITS_PER_TOKEN,
        edges=_edge_flows(graph, flow_of),
        nodes=_node_flows(graph, flow_of),
        min_cut=_min_cut(graph, {vertices[number] for number in reachable}),
        shared=_shared_flows(gates, flow_of),
    )


def routing_weights(flow: Flow) -> dict[str, dict[str, float]]:
    """weights[u][v] = flow on (u, v) for every used connection; SOURCE to SINK (Helix §5.1)."""
    weights: dict[str, dict[str, float]] = {}
    for edge in flow.edges:
        if edge.flow_tokens_per_s > 0:
            weights.setdefault(edge.source, {})[edge.target] = edge.flow_tokens_per_s
    return weights


def mean_hops(flow: Flow) -> float:
    """Flow-weighted mean number of stages of a token's pipeline; 0 without flow."""
    if flow.value_tokens_per_s <= 0:
        return 0.0
    return sum(node.flow_tokens_per_s for node in flow.nodes.values()) / flow.value_tokens_per_s


def _sort_key(vertex: Vertex) -> tuple[str, str]:
    return (vertex, "") if isinstance(vertex, str) else vertex


def _is_compute(tail: Vertex, head: Vertex) -> bool:
    """Whether this is the edge (c_in, c_out) of one node."""
    return name_of(tail) == name_of(head)


def _from_linear_flow(graph: FlowGraph, gates: tuple[Gate, ...], solved: LinearFlow) -> Flow:
    flow_of = {edge: solved.flow_tokens_per_s.get(edge, 0.0) for edge in graph.edges()}
    nodes = {
        name_of(tail): price
        for (tail, head), price in solved.edge_prices.items()
        if _is_compute(tail, head)
    }
    connections = {
        (name_of(tail), name_of(head)): price
        for (tail, head), price in solved.edge_prices.items()
        if not _is_compute(tail, head)
    }
    return Flow(
        value_tokens_per_s=solved.value_tokens_per_s,
        edges=_edge_flows(graph, flow_of),
        nodes=_node_flows(graph, flow_of),
        shared=_shared_flows(gates, flow_of),
        min_cut=MinCut(
            nodes=tuple(sorted(nodes)),
            edges=tuple(sorted(connections)),
            shared=tuple(sorted(solved.gate_prices)),
            capacity_tokens_per_s=solved.value_tokens_per_s,
            prices=(
                *(Price(kind="node", name=(name,), price=nodes[name]) for name in sorted(nodes)),
                *(
                    Price(kind="connection", name=ends, price=connections[ends])
                    for ends in sorted(connections)
                ),
                *(
                    Price(kind="shared", name=(name,), price=solved.gate_prices[name])
                    for name in sorted(solved.gate_prices)
                ),
            ),
        ),
    )


def _shared_flows(
    gates: tuple[Gate, ...], flow_of: Mapping[tuple[Vertex, Vertex], float]
) -> tuple[SharedFlow, ...]:
    return tuple(
        SharedFlow(
            name=gate.name,
            bandwidth_bytes_per_s=gate.bandwidth_bytes_per_s,
            used_bytes_per_s=sum(
                bytes_per_token * flow_of[edge]
                for edge, bytes_per_token in gate.bytes_per_token.items()
            ),
        )
        for gate in gates
    )


def _edge_flows(
    graph: FlowGraph, flow_of: Mapping[tuple[Vertex, Vertex], float]
) -> tuple[EdgeFlow, ...]:
    edges = [
        EdgeFlow(
            source=name_of(tail),
            target=name_of(head),
            capacity_tokens_per_s=capacity,
            flow_tokens_per_s=flow_of[tail, head],
        )
        for tail, head, capacity in edges_with_capacity(graph)
        if not _is_compute(tail, head)
    ]
    return tuple(sorted(edges, key=lambda edge: (edge.source, edge.target)))


def _node_flows(
    graph: FlowGraph, flow_of: Mapping[tuple[Vertex, Vertex], float]
) -> dict[str, NodeFlow]:
    return {
        name_of(tail): NodeFlow(
            capacity_tokens_per_s=capacity, flow_tokens_per_s=flow_of[tail, head]
        )
        for tail, head, capacity in edges_with_capacity(graph)
        if _is_compute(tail, head)
    }


def _reachable_in_residual(residual: "nx.DiGraph[int]", source: int) -> set[int]:
    """Vertices that more flow could still reach: the source's side of a minimum cut."""
    reached = {source}
    waiting = [source]
    while waiting:
        vertex = waiting.pop()
        for neighbour, attributes in residual[vertex].items():
            if neighbour not in reached and attributes["flow"] < attributes["capacity"]:
                reached.add(neighbour)
                waiting.append(neighbour)
    return reached


def _min_cut(graph: FlowGraph, source_side: set[Vertex]) -> MinCut:
    crossing = [
        (tail, head, capacity)
        for tail, head, capacity in edges_with_capacity(graph)
        if tail in source_side and head not in source_side
    ]
    return MinCut(
        nodes=tuple(sorted(name_of(tail) for tail, head, _ in crossing if _is_compute(tail, head))),
        edges=tuple(
            sorted(
                (name_of(tail), name_of(head))
                for tail, head, _ in crossing
                if not _is_compute(tail, head)
            )
        ),
        capacity_tokens_per_s=sum(capacity for _, _, capacity in crossing),
    )
