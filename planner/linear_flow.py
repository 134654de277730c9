"""The max flow of a flow graph by HiGHS' simplex method, which can also share bandwidth.

maximise  sum of flow out of SOURCE
s.t.      flow is conserved at every vertex,  flow(e) <= capacity(e)
          sum over a gate's edges of bytes_per_token(e) flow(e) <= bandwidth
"""

from collections.abc import Mapping
from dataclasses import dataclass

import highspy
import numpy as np

from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import PlannerError
from planner.flow_graph import FlowGraph, Gate, Vertex, edges_with_capacity, name_of

_SIMPLEX_TOLERANCE = 1e-10  # the least that HiGHS accepts


class LinearFlowFailed(PlannerError):
    """HiGHS did not reach the optimum of a linear program that always has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFlow:
    """An optimum: tokens/s per edge, and the prices (dual values) that prove it.

    `edge_prices` in tokens/s per token/s, `gate_prices` in tokens/s per byte/s; only those above 0.
    """

    value_tokens_per_s: float
    flow_tokens_per_s: Mapping[tuple[Vertex, Vertex], float]
    edge_prices: Mapping[tuple[Vertex, Vertex], float]
    gate_prices: Mapping[str, float]


def solve_linear_flow(graph: FlowGraph, gates: tuple[Gate, ...]) -> LinearFlow:
    """The optimum of the program above. Raises LinearFlowFailed."""
    edges = edges_with_capacity(graph)
    # In units that no flow can exceed: a coordinator link of 5e8 tokens/s beside nodes of 1e3 would
    # defeat HiGHS' absolute tolerances. A link above the unit is no limit.
    unit_tokens_per_s = _compute_through_source(graph)
    if unit_tokens_per_s <= 0:
        return LinearFlow(
            value_tokens_per_s=0.0, flow_tokens_per_s={}, edge_prices={}, gate_prices={}
        )
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("primal_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.setOptionValue("dual_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.passModel(_program(graph, edges, gates, unit_tokens_per_s=unit_tokens_per_s))
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise LinearFlowFailed(
            f"the linear program of the flow ended as {solver.modelStatusToString(status)!r}; "
            "a feasible flow always has an optimum, so please report this placement"
        )
    solution = solver.getSolution()
    num_inner = len(graph) - 2
    return LinearFlow(
        value_tokens_per_s=float(solver.getObjectiveValue()) * unit_tokens_per_s,
        flow_tokens_per_s={
            (tail, head): max(0.0, flow) * unit_tokens_per_s
            for (tail, head, _), flow in zip(edges, solution.col_value, strict=True)
        },
        edge_prices={
            (tail, head): price
            for (tail, head, _), price in zip(edges, solution.col_dual, strict=True)
            if price > _SIMPLEX_TOLERANCE
        },
        gate_prices={
            gate.name: price / _scale(gate)
            for gate, price in zip(gates, solution.row_dual[num_inner:], strict=True)
            if price > _SIMPLEX_TOLERANCE
        },
    )


def _compute_through_source(graph: FlowGraph) -> float:
    """The speed of all nodes that the source feeds: an upper bound on the flow."""
    speeds: list[float] = [
        data["capacity"] for entry in graph[SOURCE] for data in graph[entry].values()
    ]
    return sum(speeds)


def _scale(gate: Gate) -> float:
    """Bytes per token of the gate's heaviest edge; its row is divided by it."""
    return max(gate.bytes_per_token.values())


def _program(
    graph: FlowGraph,
    edges: list[tuple[Vertex, Vertex, float]],
    gates: tuple[Gate, ...],
    *,
    unit_tokens_per_s: float,
) -> highspy.HighsLp:
    inner = [vertex for vertex in graph if vertex not in (SOURCE, SINK)]
    row_of = {vertex: row for row, vertex in enumerate(inner)}
    starts, rows, values = [0], [], []
    for tail, head, _ in edges:
        for vertex, sign in ((tail, -1.0), (head, 1.0)):
            if vertex in row_of:
                rows.append(row_of[vertex])
                values.append(sign)
        for number, gate in enumerate(gates):
            if (tail, head) in gate.bytes_per_token:
                rows.append(len(inner) + number)
                values.append(gate.bytes_per_token[tail, head] / _scale(gate))
        starts.append(len(rows))
    bandwidths = [gate.bandwidth_bytes_per_s / _scale(gate) / unit_tokens_per_s for gate in gates]
    program = highspy.HighsLp()
    program.num_col_ = len(edges)
    program.num_row_ = len(inner) + len(gates)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = np.array([1.0 if tail == SOURCE else 0.0 for tail, _, _ in edges])
    program.col_lower_ = np.zeros(len(edges))
    program.col_upper_ = np.array(
        [
            capacity / unit_tokens_per_s
            if capacity < unit_tokens_per_s or name_of(tail) == name_of(head)
            else highspy.kHighsInf
            for tail, head, capacity in edges
        ]
    )
    program.row_lower_ = np.array([0.0] * len(inner) + [-highspy.kHighsInf] * len(gates))
    program.row_upper_ = np.array([0.0] * len(inner) + bandwidths)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.array(starts, dtype=np.int32)
    program.a_matrix_.index_ = np.array(rows, dtype=np.int32)
    program.a_matrix_.value_ = np.array(values)
    return program
