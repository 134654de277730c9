"""Checks of a flow that share no code with the way it was found.

`check_flow` needs only the flow itself: feasible, and as large as a cut that separates source from
sink, hence maximal. `flow_value_by_linear_program` solves the same graph by the simplex method.
"""

from collections import defaultdict

import highspy
import numpy as np

from planner.capacity import throughput_tokens_per_s
from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import PlannerError
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.flow_graph import build_flow_graph, edges_with_capacity

RELATIVE_TOLERANCE = 1e-6
_ABSOLUTE_TOLERANCE_TOKENS_PER_S = 1e-6
_SIMPLEX_TOLERANCE = 1e-10  # the least that HiGHS accepts


class FlowCheckFailed(PlannerError):
    """A flow that is infeasible, not maximal, or different by another method."""


def nearly_equal(left: float, right: float) -> bool:
    """Equal within 1e-6 relative, or 1e-6 tokens/s."""
    larger = max(abs(left), abs(right))
    return abs(left - right) <= _ABSOLUTE_TOLERANCE_TOKENS_PER_S + RELATIVE_TOLERANCE * larger


def check_flow(flow: Flow) -> None:
    """Raises FlowCheckFailed unless the flow is feasible, conserved and equal to its cut."""
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
    _check_cut(flow)


def flow_value_by_linear_program(
    problem: Problem, placement: Placement, *, partial_inference: bool
) -> float:
    """The max flow in tokens/s by HiGHS' simplex method on the linear program of the flow graph.

    Raises InvalidPlacement, and FlowCheckFailed when HiGHS does not reach optimality.
    """
    graph = build_flow_graph(problem, placement, partial_inference=partial_inference)
    edges = edges_with_capacity(graph)
    inner = [vertex for vertex in graph if vertex not in (SOURCE, SINK)]
    row_of = {vertex: row for row, vertex in enumerate(inner)}
    # In units of the coverage, which no link can exceed: a coordinator link of 5e8 tokens/s beside
    # nodes of 1e3 would defeat HiGHS' absolute tolerances.
    unit_tokens_per_s = _coverage_tokens_per_s(problem, placement)
    if unit_tokens_per_s <= 0:
        return 0.0
    starts, rows, signs = [0], [], []
    for tail, head, _ in edges:
        if tail in row_of:
            rows.append(row_of[tail])
            signs.append(-1.0)
        if head in row_of:
            rows.append(row_of[head])
            signs.append(1.0)
        starts.append(len(rows))
    program = highspy.HighsLp()
    program.num_col_ = len(edges)
    program.num_row_ = len(inner)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = np.array([1.0 if tail == SOURCE else 0.0 for tail, _, _ in edges])
    program.col_lower_ = np.zeros(len(edges))
    program.col_upper_ = np.array(
        [min(capacity / unit_tokens_per_s, 1.0) for _, _, capacity in edges]
    )
    program.row_lower_ = np.zeros(len(inner))
    program.row_upper_ = np.zeros(len(inner))
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.array(starts, dtype=np.int32)
    program.a_matrix_.index_ = np.array(rows, dtype=np.int32)
    program.a_matrix_.value_ = np.array(signs)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("primal_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.setOptionValue("dual_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise FlowCheckFailed(
            f"the linear program of the flow ended as {solver.modelStatusToString(status)!r}; "
            "a feasible flow always has an optimum, so please report this placement"
        )
    return float(solver.getObjectiveValue()) * unit_tokens_per_s


def _coverage_tokens_per_s(problem: Problem, placement: Placement) -> float:
    """The speed of the slowest layer's nodes together: an upper bound on the placement's flow."""
    return min(
        sum(
            throughput_tokens_per_s(problem, name, len(held))
            for name, held in placement.layers.items()
            if held.first <= layer < held.end
        )
        for layer in range(problem.model.num_layers)
    )


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
