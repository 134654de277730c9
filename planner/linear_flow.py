"""The max flow of a flow graph by HiGHS' simplex method, which can also share bandwidth.

maximise  sum of flow out of SOURCE
s.t.      flow is conserved at every vertex,  flow(e) <= capacity(e)
          sum over a gate's edges of bytes_per_token(e) flow(e) <= bandwidth

Indistinguishable nodes are one vertex (`planner.twins`). That changes nothing: the mean of an
optimum over all exchanges of twins is an optimum that treats them alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import highspy
import numpy as np

from planner.domain.errors import PlannerError
from planner.flow_graph import SOURCE_VERTEX, Floats, FlowGraph, Gate, Integers
from planner.twins import Merged, merge_twins

_SIMPLEX_TOLERANCE = 1e-10  # the least that HiGHS accepts


class LinearFlowFailed(PlannerError):
    """HiGHS did not reach the optimum of a linear program that always has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFlow:
    """An optimum: tokens/s per edge, and the prices (dual values) that prove it.

    `edge_prices_E` in tokens/s per token/s, `gate_prices` in tokens/s per byte/s, the latter only
    where above 0.
    """

    value_tokens_per_s: float
    flow_tokens_per_s_E: Floats
    edge_prices_E: Floats
    gate_prices: Mapping[str, float]


def solve_linear_flow(graph: FlowGraph, gates: tuple[Gate, ...]) -> LinearFlow:
    """The optimum of the program above. Raises LinearFlowFailed."""
    # In units that no flow can exceed: a coordinator link of 5e8 tokens/s beside nodes of 1e3 would
    # defeat HiGHS' absolute tolerances. A link above the unit is no limit.
    unit_tokens_per_s = compute_through_source(graph)
    num_edges = len(graph.tails)
    if unit_tokens_per_s <= 0:
        return LinearFlow(
            value_tokens_per_s=0.0,
            flow_tokens_per_s_E=np.zeros(num_edges),
            edge_prices_E=np.zeros(num_edges),
            gate_prices={},
        )
    merged = merge_twins(graph, gates)
    # Columns by their ends: which of many optima is found depends on their order.
    column_order = np.lexsort((merged.graph.heads, merged.graph.tails))
    column_of_M = np.argsort(column_order)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("primal_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.setOptionValue("dual_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.passModel(_program(merged, column_order, unit_tokens_per_s=unit_tokens_per_s))
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise LinearFlowFailed(
            f"the linear program of the flow ended as {solver.modelStatusToString(status)!r}; "
            "a feasible flow always has an optimum, so please report this placement"
        )
    solution = solver.getSolution()
    column_of_E = column_of_M[merged.edge_of_E]
    flows = np.maximum(0.0, np.array(solution.col_value)) * unit_tokens_per_s
    prices = np.array(solution.col_dual)
    prices[prices <= _SIMPLEX_TOLERANCE] = 0.0
    return LinearFlow(
        value_tokens_per_s=float(solver.getObjectiveValue()) * unit_tokens_per_s,
        flow_tokens_per_s_E=flows[column_of_E] / merged.sizes_E,
        edge_prices_E=prices[column_of_E],
        gate_prices={
            gate.name: price / _scale(gate)
            for gate, price in zip(
                gates, solution.row_dual[merged.graph.num_vertices - 2 :], strict=True
            )
            if price > _SIMPLEX_TOLERANCE
        },
    )


def compute_through_source(graph: FlowGraph) -> float:
    """The speed of all nodes that the source feeds: an upper bound on the flow."""
    fed = np.isin(graph.tails, graph.heads[graph.tails == SOURCE_VERTEX])
    return float(graph.capacities_tokens_per_s[fed].sum())


def _scale(gate: Gate) -> float:
    """Bytes per token of the gate's heaviest edge; its row is divided by it."""
    return float(gate.bytes_per_token_E.max())


def _program(
    merged: Merged, column_order: Integers, *, unit_tokens_per_s: float
) -> highspy.HighsLp:
    """Columns are the merged edges; rows their nodes' entries and exits, then the gates."""
    graph, num_columns = merged.graph, len(column_order)
    num_inner = graph.num_vertices - 2
    tails, heads = graph.tails[column_order], graph.heads[column_order]
    columns = np.arange(num_columns)
    parts = [
        (columns[inner], vertices[inner] - 2, np.full(int(inner.sum()), sign))
        for vertices, sign in ((tails, -1.0), (heads, 1.0))
        for inner in (vertices >= 2,)
    ]
    for number, gate in enumerate(merged.gates):
        use = gate.bytes_per_token_E[column_order] / _scale(gate)
        used = np.flatnonzero(use)
        parts.append((used, np.full(len(used), num_inner + number), use[used]))
    column_of, row_of, value_of = (
        np.concatenate([part[position] for part in parts]) for position in range(3)
    )
    order = np.argsort(column_of, kind="stable")
    starts = np.searchsorted(column_of[order], np.arange(num_columns + 1))
    capacities = graph.capacities_tokens_per_s[column_order]
    alone = capacities / np.bincount(merged.edge_of_E)[column_order]
    is_no_limit = (alone >= unit_tokens_per_s) & (column_order >= len(graph.names))
    bandwidths = [
        gate.bandwidth_bytes_per_s / _scale(gate) / unit_tokens_per_s for gate in merged.gates
    ]
    program = highspy.HighsLp()
    program.num_col_ = num_columns
    program.num_row_ = num_inner + len(merged.gates)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = (tails == SOURCE_VERTEX).astype(np.float64)
    program.col_lower_ = np.zeros(num_columns)
    program.col_upper_ = np.where(is_no_limit, highspy.kHighsInf, capacities / unit_tokens_per_s)
    program.row_lower_ = np.array([0.0] * num_inner + [-highspy.kHighsInf] * len(merged.gates))
    program.row_upper_ = np.array([0.0] * num_inner + bandwidths)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = starts.astype(np.int32)
    program.a_matrix_.index_ = row_of[order].astype(np.int32)
    program.a_matrix_.value_ = value_of[order]
    return program
