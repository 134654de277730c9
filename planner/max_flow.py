"""Maximum flow and minimum cut of a placement (Helix §4.3).

The paper uses preflow-push; here it is Dinic's algorithm (`planner.integer_flow`): the value is the
same by any. Where bandwidth is shared and that flow, which knows nothing of it, exceeds some, the
linear program decides; its prices take the place of the cut.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import TypeAlias

import numpy as np

from planner.domain.flow import EdgeFlow, Flow, MinCut, NodeFlow, Price, PriceKind, SharedFlow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.flow_graph import (
    SINK_VERTEX,
    SOURCE_VERTEX,
    Bools,
    Floats,
    FlowGraph,
    Gate,
    build_flow_graph,
    gates_of,
)
from planner.integer_flow import IntegerNetwork, maximum_flow
from planner.linear_flow import LinearFlow, solve_linear_flow

# Augmenting paths end when no capacity is left, which floats do not reach: 0.1 + 0.2 - 0.3 is left
# behind. So capacities are rounded down to whole multiples of 2**-30 tokens/s (1e-9), far below any
# measurement, and cut where nothing computes, so that they fit into 63 bits.
_UNITS_PER_TOKEN = 2**30
_AMPLE_TOKENS_PER_S = 2.0**32


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowThroughNodes:
    """Value of a max flow, the flow of each node, and the nodes of its minimum cut."""

    value_tokens_per_s: float
    nodes: Mapping[str, NodeFlow]
    in_cut: frozenset[str]


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
    found = solved_flow(graph, gates)
    return flow_of(graph, gates, found, found.flow_tokens_per_s_E)


def flow_of(
    graph: FlowGraph, gates: tuple[Gate, ...], found: "Solved", flow_tokens_per_s_E: Floats
) -> Flow:
    """The flow on every edge of the graph, with the minimum cut of the one that was found."""
    return Flow(
        value_tokens_per_s=found.value_tokens_per_s,
        edges=_edge_flows(graph, flow_tokens_per_s_E),
        nodes=_node_flows(graph, flow_tokens_per_s_E),
        min_cut=(
            _cut_by_prices(graph, found)
            if isinstance(found, LinearFlow)
            else _min_cut(graph, found)
        ),
        shared=_shared_flows(gates, flow_tokens_per_s_E),
    )


def flow_value_tokens_per_s(problem: Problem, graph: FlowGraph) -> float:
    """The value of `max_flow`, to the last bit; `graph` is the placement's."""
    return solved_flow(graph, gates_of(problem, graph)).value_tokens_per_s


def flow_through_nodes(problem: Problem, graph: FlowGraph) -> FlowThroughNodes:
    """As `max_flow`, for nodes only and faster; `graph` is the placement's."""
    found = solved_flow(graph, gates_of(problem, graph))
    is_cut = found.edge_prices_E > 0 if isinstance(found, LinearFlow) else found.crosses_cut_E
    return FlowThroughNodes(
        value_tokens_per_s=found.value_tokens_per_s,
        nodes=_node_flows(graph, found.flow_tokens_per_s_E),
        in_cut=frozenset(compress(graph.names, is_cut)),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentedFlow:
    """A max flow by augmenting paths; edge e leads out of what more flow could still reach."""

    value_tokens_per_s: float
    flow_tokens_per_s_E: Floats
    crosses_cut_E: Bools


Solved: TypeAlias = AugmentedFlow | LinearFlow


def solved_flow(graph: FlowGraph, gates: tuple[Gate, ...]) -> Solved:
    """Max flow by augmenting paths without shared bandwidth; by the linear program if it binds."""
    ample = np.minimum(graph.capacities_tokens_per_s, _AMPLE_TOKENS_PER_S)
    whole = maximum_flow(
        IntegerNetwork(
            num_vertices=graph.num_vertices,
            source=SOURCE_VERTEX,
            sink=SINK_VERTEX,
            tails=graph.tails,
            heads=graph.heads,
            capacities=(ample * _UNITS_PER_TOKEN).astype(np.int64),
        )
    )
    flow_E = whole.flows / _UNITS_PER_TOKEN
    if any(_used_bytes_per_s(gate, flow_E) > gate.bandwidth_bytes_per_s for gate in gates):
        return solve_linear_flow(graph, gates)
    is_reached = whole.from_source > 0
    return AugmentedFlow(
        value_tokens_per_s=whole.value / _UNITS_PER_TOKEN,
        flow_tokens_per_s_E=flow_E,
        crosses_cut_E=is_reached[graph.tails] & ~is_reached[graph.heads],
    )


def _used_bytes_per_s(gate: Gate, flow_E: Floats) -> float:
    return float(gate.bytes_per_token_E @ flow_E)


def _cut_by_prices(graph: FlowGraph, solved: LinearFlow) -> MinCut:
    prices = solved.edge_prices_E.tolist()
    priced: dict[PriceKind, dict[tuple[str, ...], float]] = {
        "node": {(name,): price for name, price in zip(graph.names, prices, strict=False)},
        "connection": dict(
            zip(graph.ends_of_connections(), prices[len(graph.names) :], strict=True)
        ),
        "shared": {(name,): price for name, price in solved.gate_prices.items()},
    }
    found = [
        Price(kind=kind, name=name, price=price)
        for kind, of_kind in priced.items()
        for name, price in sorted(of_kind.items())
        if price > 0
    ]
    return MinCut(
        nodes=tuple(one.name[0] for one in found if one.kind == "node"),
        edges=tuple((one.name[0], one.name[1]) for one in found if one.kind == "connection"),
        shared=tuple(one.name[0] for one in found if one.kind == "shared"),
        capacity_tokens_per_s=solved.value_tokens_per_s,
        prices=tuple(found),
    )


def _shared_flows(gates: tuple[Gate, ...], flow_E: Floats) -> tuple[SharedFlow, ...]:
    return tuple(
        SharedFlow(
            name=gate.name,
            bandwidth_bytes_per_s=gate.bandwidth_bytes_per_s,
            used_bytes_per_s=_used_bytes_per_s(gate, flow_E),
        )
        for gate in gates
    )


def _edge_flows(graph: FlowGraph, flow_E: Floats) -> tuple[EdgeFlow, ...]:
    """Flows of connections, sorted by their ends."""
    start = len(graph.names)
    capacities = graph.capacities_tokens_per_s[start:].tolist()
    connections = sorted(
        zip(graph.ends_of_connections(), capacities, flow_E[start:].tolist(), strict=True)
    )
    return tuple(
        EdgeFlow(
            source=source, target=target, capacity_tokens_per_s=capacity, flow_tokens_per_s=flow
        )
        for (source, target), capacity, flow in connections
    )


def _node_flows(graph: FlowGraph, flow_E: Floats) -> dict[str, NodeFlow]:
    capacities = graph.capacities_tokens_per_s.tolist()
    return {
        name: NodeFlow(capacity_tokens_per_s=capacity, flow_tokens_per_s=flow)
        for name, capacity, flow in zip(graph.names, capacities, flow_E.tolist(), strict=False)
    }


def _min_cut(graph: FlowGraph, found: AugmentedFlow) -> MinCut:
    """The edges that lead out of what more flow could still reach."""
    crosses, count = found.crosses_cut_E, len(graph.names)
    return MinCut(
        nodes=tuple(compress(graph.names, crosses[:count])),
        edges=tuple(sorted(compress(graph.ends_of_connections(), crosses[count:]))),
        capacity_tokens_per_s=float(graph.capacities_tokens_per_s[crosses].sum()),
    )
