"""Checks of a flow that share no code with the way it was found.

`check_flow` needs only the flow itself: feasible, and as large as a cut that separates source from
sink, hence maximal. Where bandwidth is shared it needs the problem too, which says who shares it,
and prices take the cut's place. `flow_value_by_second_method` solves the same graph by networkx's
preflow-push, as the paper does, or by the simplex method where bandwidth is shared.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping

from planner.domain.cluster import COORDINATOR, SINK, SOURCE, SharedBandwidth
from planner.domain.errors import PlannerError
from planner.domain.flow import EdgeFlow, Flow, PriceKind
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.flow_graph import FlowGraph, build_flow_graph, gates_of
from planner.linear_flow import compute_through_source, solve_linear_flow
from planner.twins import merge_twins

RELATIVE_TOLERANCE = 1e-6
_ABSOLUTE_TOLERANCE_TOKENS_PER_S = 1e-6
_UNITS = 2**40


class FlowCheckFailed(PlannerError):
    """A flow that is infeasible, not maximal, or different by another method."""


def nearly_equal(left: float, right: float) -> bool:
    """Equal within 1e-6 relative, or 1e-6 tokens/s."""
    larger = max(abs(left), abs(right))
    return abs(left - right) <= _ABSOLUTE_TOLERANCE_TOKENS_PER_S + RELATIVE_TOLERANCE * larger


def check_flow(flow: Flow, *, problem: Problem | None = None) -> None:
    """Raise FlowCheckFailed unless the flow is feasible, conserved and equal to its cut.

    `problem` may be left out when no bandwidth is shared.
    """
    entering: dict[str, float] = defaultdict(float)
    leaving: dict[str, float] = defaultdict(float)
    for edge in flow.edges:
        where = f"connection {edge.source} -> {edge.target}"
        _check_within(where, edge.flow_tokens_per_s, edge.capacity_tokens_per_s)
        leaving[edge.source] += edge.flow_tokens_per_s
        entering[edge.target] += edge.flow_tokens_per_s
    for name, node in flow.nodes.items():
        _check_within(f"node {name}", node.flow_tokens_per_s, node.capacity_tokens_per_s)
        _check_equal(f"flow into node {name}", entering[name], node.flow_tokens_per_s)
        _check_equal(f"flow out of node {name}", leaving[name], node.flow_tokens_per_s)
    _check_equal("flow out of the source", leaving[SOURCE], flow.value_tokens_per_s)
    _check_equal("flow into the sink", entering[SINK], flow.value_tokens_per_s)
    if problem is None:
        if flow.shared:
            raise FlowCheckFailed("the flow shares bandwidth; give its problem to check that too")
        _check_cut(flow)
        return
    _check_shared(problem, flow)
    if flow.min_cut.prices:
        _check_prices(problem, flow)
    else:
        _check_cut(flow)


def flow_value_by_second_method(
    problem: Problem, placement: Placement, *, partial_inference: bool, max_hops: int | None = None
) -> float:
    """The max flow in tokens/s by networkx's preflow-push on the flow graph.

    Shared bandwidth is no edge of a graph: there, by the linear program. Raises InvalidPlacement
    and LinearFlowFailed.
    """
    graph = build_flow_graph(
        problem, placement, partial_inference=partial_inference, max_hops=max_hops
    )
    gates = gates_of(problem, graph)
    if gates:
        return solve_linear_flow(graph, gates).value_tokens_per_s
    return _value_by_preflow_push(graph)


def _value_by_preflow_push(graph: FlowGraph) -> float:
    """Max flow by preflow-push, in integer units, at most 2**40."""
    from networkx.algorithms.flow import preflow_push  # takes a while to load

    ample = compute_through_source(graph)
    if ample <= 0:
        return 0.0
    pushed = merge_twins(graph, ()).graph.to_networkx()
    for _, _, edge in pushed.edges(data=True):
        edge["capacity"] = int(min(edge["capacity"] / ample, 1.0) * _UNITS)
    units: int = preflow_push(pushed, SOURCE, SINK, value_only=True).graph["flow_value"]
    return units / _UNITS * ample


def _check_within(where: str, flow: float, capacity: float) -> None:
    if flow < 0 or (flow > capacity and not nearly_equal(flow, capacity)):
        raise FlowCheckFailed(
            f"{where} carries {flow} tokens/s; its capacity allows 0 to {capacity}"
        )


def _check_equal(what: str, found: float, expected: float) -> None:
    if not nearly_equal(found, expected):
        raise FlowCheckFailed(f"{what} is {found} tokens/s; it must equal {expected}")


def _check_cut(flow: Flow) -> None:
    """The named nodes and edges disconnect source from sink and weigh as much as the flow."""
    cut_nodes, cut_edges = set(flow.min_cut.nodes), set(flow.min_cut.edges)
    capacity = sum(flow.nodes[name].capacity_tokens_per_s for name in cut_nodes) + sum(
        edge.capacity_tokens_per_s for edge in flow.edges if (edge.source, edge.target) in cut_edges
    )
    _check_equal("capacity of the minimum cut", capacity, flow.min_cut.capacity_tokens_per_s)
    _check_equal("capacity of the minimum cut", capacity, flow.value_tokens_per_s)
    targets: dict[str, list[str]] = defaultdict(list)
    for edge in flow.edges:
        if (edge.source, edge.target) not in cut_edges and edge.target not in cut_nodes:
            targets[edge.source].append(edge.target)
    reached, waiting = {SOURCE}, [SOURCE]
    while waiting:
        for target in targets[waiting.pop()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    if SINK in reached:
        raise FlowCheckFailed(
            f"the minimum cut (nodes {sorted(cut_nodes)}, connections {sorted(cut_edges)}) leaves "
            "a path from source to sink; it must separate them"
        )


def _bytes_per_token(
    problem: Problem, edge: EdgeFlow, shared: SharedBandwidth, *, members: Collection[str]
) -> float:
    """Bytes per token of this connection on a shared bandwidth; 0 if it does not use it."""
    ends = {
        "egress": COORDINATOR if edge.source == SOURCE else edge.source,
        "ingress": COORDINATOR if edge.target == SINK else edge.target,
    }
    here = ends.pop(shared.direction)
    (there,) = ends.values()
    if here not in members or (shared.scope == "region" and there in members):
        return 0.0
    if COORDINATOR in (here, there):
        return problem.model.token_bytes
    return problem.model.activation_bytes_per_token


def _check_shared(problem: Problem, flow: Flow) -> None:
    for shared in problem.cluster.shared:
        members = problem.cluster.members_of(shared)
        used = sum(
            _bytes_per_token(problem, edge, shared, members=members) * edge.flow_tokens_per_s
            for edge in flow.edges
        )
        where = f"{shared.direction} of {shared.name}"
        if used > shared.bandwidth_bytes_per_s and not nearly_equal(
            used, shared.bandwidth_bytes_per_s
        ):
            raise FlowCheckFailed(
                f"{where} carries {used} bytes/s; its bandwidth is {shared.bandwidth_bytes_per_s}"
            )


def _check_prices(problem: Problem, flow: Flow) -> None:
    """Check that every path costs at least 1 and all limits together the flow: so it is maximal.

    (Weak duality: the flow's tokens pay for every limit that they use, and use no more of it than
    there is.)
    """
    prices: dict[tuple[PriceKind, tuple[str, ...]], float] = {
        (price.kind, price.name): price.price for price in flow.min_cut.prices
    }
    for (kind, name), price in prices.items():
        if price < 0:
            raise FlowCheckFailed(f"the price of {kind} {name} is {price}; none may be below 0")
    charged: dict[tuple[str, str], float] = defaultdict(float)
    cost = sum(
        prices.get(("node", (name,)), 0.0) * node.capacity_tokens_per_s
        for name, node in flow.nodes.items()
    )
    for edge in flow.edges:
        price = prices.get(("connection", (edge.source, edge.target)), 0.0)
        charged[edge.source, edge.target] += price
        cost += price * edge.capacity_tokens_per_s
    for shared in problem.cluster.shared:
        price = prices.get(("shared", (shared.name,)), 0.0)
        if price == 0:
            continue
        cost += price * shared.bandwidth_bytes_per_s
        members = problem.cluster.members_of(shared)
        for edge in flow.edges:
            charged[edge.source, edge.target] += price * _bytes_per_token(
                problem, edge, shared, members=members
            )
    _check_equal("cost of all limits at the minimum cut's prices", cost, flow.value_tokens_per_s)
    cheapest = _cheapest_path(
        charged, {name: prices.get(("node", (name,)), 0.0) for name in flow.nodes}
    )
    if cheapest < 1 and not nearly_equal(cheapest, 1.0):
        raise FlowCheckFailed(
            f"a path from source to sink pays {cheapest} at the minimum cut's prices; "
            "every path must pay 1 or more"
        )


def _cheapest_path(
    charged: Mapping[tuple[str, str], float], node_price: Mapping[str, float]
) -> float:
    """Least sum of prices from source to sink (Bellman-Ford until nothing changes)."""
    least = {SOURCE: 0.0}
    changed = True
    while changed:
        changed = False
        for (source, target), price in charged.items():
            if source not in least:
                continue
            total = least[source] + price + node_price.get(target, 0.0)
            if total < least.get(target, math.inf):
                least[target] = total
                changed = True
    return least.get(SINK, math.inf)
