"""The max flow of a flow graph by HiGHS' simplex method, which can also share bandwidth.

maximise  sum of flow out of SOURCE
s.t.      flow is conserved at every vertex,  flow(e) <= capacity(e)
          sum over a gate's edges of bytes_per_token(e) flow(e) <= bandwidth

Nodes that are alike (same layers, region, speed, component, shares; no link of their own) are one
vertex with their capacities added up. That changes nothing: the mean of an optimum over all
exchanges of like nodes is an optimum that treats them alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import highspy
import numpy as np

from planner.domain.errors import PlannerError
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.flow_graph import SINK_VERTEX, SOURCE_VERTEX, Floats, FlowGraph, Gate, Integers

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


def solve_linear_flow(
    problem: Problem, placement: Placement, graph: FlowGraph, gates: tuple[Gate, ...]
) -> LinearFlow:
    """The optimum of the program above; `graph` is the placement's. Raises LinearFlowFailed."""
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
    merged = _merged(graph, _classes(problem, placement, graph))
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("primal_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.setOptionValue("dual_feasibility_tolerance", _SIMPLEX_TOLERANCE)
    solver.passModel(_program(graph, merged, gates, unit_tokens_per_s=unit_tokens_per_s))
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise LinearFlowFailed(
            f"the linear program of the flow ended as {solver.modelStatusToString(status)!r}; "
            "a feasible flow always has an optimum, so please report this placement"
        )
    solution = solver.getSolution()
    flows = np.maximum(0.0, np.array(solution.col_value)) * unit_tokens_per_s / merged.sizes
    prices = np.array(solution.col_dual)
    prices[prices <= _SIMPLEX_TOLERANCE] = 0.0
    return LinearFlow(
        value_tokens_per_s=float(solver.getObjectiveValue()) * unit_tokens_per_s,
        flow_tokens_per_s_E=flows[merged.edge_of_E],
        edge_prices_E=prices[merged.edge_of_E],
        gate_prices={
            gate.name: price / _scale(gate)
            for gate, price in zip(gates, solution.row_dual[merged.num_inner :], strict=True)
            if price > _SIMPLEX_TOLERANCE
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merged:
    """The graph of classes: `edge_of_E` is each edge's, `sizes` how many edges each stands for.

    `examples` are edges of the graph, one of each; vertices are SOURCE, SINK, then entries and
    exits of `num_inner` / 2 classes.
    """

    num_inner: int
    edge_of_E: Integers
    examples: Integers
    tails: Integers
    heads: Integers
    sizes: Integers


def _classes(problem: Problem, placement: Placement, graph: FlowGraph) -> Integers:
    """The number of each node's class."""
    cluster = problem.cluster
    with_links = {end for link in cluster.links for end in (link.source, link.target)}
    shares = [cluster.members_of(shared) for shared in cluster.shared]
    number_of: dict[tuple[object, ...], int] = {}
    classes = []
    for index, name in enumerate(graph.names):
        held = placement.layers[name]
        key = (
            held.first,
            held.end,
            placement.component_of(name) if placement.components else 0,
            cluster.region_of(name),
            float(graph.capacities_tokens_per_s[index]),
            tuple(name in members for members in shares),
            name if name in with_links else "",
        )
        classes.append(number_of.setdefault(key, len(number_of)))
    return np.array(classes, dtype=np.int64)


def _merged(graph: FlowGraph, classes: Integers) -> _Merged:
    inner = 2 * np.repeat(classes, 2) + np.tile([0, 1], len(classes))
    class_vertex = np.concatenate(([SOURCE_VERTEX, SINK_VERTEX], 2 + inner))
    num_inner = 2 * (int(classes.max()) + 1)
    tails, heads = class_vertex[graph.tails], class_vertex[graph.heads]
    _, examples, edge_of_E, sizes = np.unique(
        tails * (num_inner + 2) + heads,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    return _Merged(
        num_inner=num_inner,
        edge_of_E=edge_of_E,
        examples=examples,
        tails=tails[examples],
        heads=heads[examples],
        sizes=sizes,
    )


def merged_graph(problem: Problem, placement: Placement, graph: FlowGraph) -> FlowGraph:
    """The same max flow on fewer vertices: like nodes as one, under the name of one of them."""
    classes = _classes(problem, placement, graph)
    merged = _merged(graph, classes)
    is_own = (merged.tails % 2 == 0) & (merged.heads == merged.tails + 1) & (merged.tails >= 2)
    own_first = np.argsort(~is_own, kind="stable")
    _, first_of_class = np.unique(classes, return_index=True)
    return FlowGraph(
        names=tuple(graph.names[index] for index in first_of_class.tolist()),
        tails=merged.tails[own_first],
        heads=merged.heads[own_first],
        capacities_tokens_per_s=(graph.capacities_tokens_per_s[merged.examples] * merged.sizes)[
            own_first
        ],
    )


def compute_through_source(graph: FlowGraph) -> float:
    """The speed of all nodes that the source feeds: an upper bound on the flow."""
    fed = np.isin(graph.tails, graph.heads[graph.tails == SOURCE_VERTEX])
    return float(graph.capacities_tokens_per_s[fed].sum())


def _scale(gate: Gate) -> float:
    """Bytes per token of the gate's heaviest edge; its row is divided by it."""
    return float(gate.bytes_per_token_E.max())


def _program(
    graph: FlowGraph, merged: _Merged, gates: tuple[Gate, ...], *, unit_tokens_per_s: float
) -> highspy.HighsLp:
    """Columns are the merged edges; rows the classes' entries and exits, then the gates."""
    num_columns = len(merged.tails)
    columns = np.arange(num_columns)
    parts = [
        (columns[inner], vertices[inner] - 2, np.full(int(inner.sum()), sign))
        for vertices, sign in ((merged.tails, -1.0), (merged.heads, 1.0))
        for inner in (vertices >= 2,)
    ]
    for number, gate in enumerate(gates):
        use = gate.bytes_per_token_E[merged.examples] / _scale(gate)
        used = np.flatnonzero(use)
        parts.append((used, np.full(len(used), merged.num_inner + number), use[used]))
    column_of, row_of, value_of = (
        np.concatenate([part[position] for part in parts]) for position in range(3)
    )
    order = np.argsort(column_of, kind="stable")
    starts = np.searchsorted(column_of[order], np.arange(num_columns + 1))
    capacities = graph.capacities_tokens_per_s[merged.examples]
    is_no_limit = (capacities >= unit_tokens_per_s) & (merged.examples >= len(graph.names))
    upper = capacities * merged.sizes / unit_tokens_per_s
    bandwidths = [gate.bandwidth_bytes_per_s / _scale(gate) / unit_tokens_per_s for gate in gates]
    program = highspy.HighsLp()
    program.num_col_ = num_columns
    program.num_row_ = merged.num_inner + len(gates)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = (merged.tails == SOURCE_VERTEX).astype(np.float64)
    program.col_lower_ = np.zeros(num_columns)
    program.col_upper_ = np.where(is_no_limit, highspy.kHighsInf, upper)
    program.row_lower_ = np.array([0.0] * merged.num_inner + [-highspy.kHighsInf] * len(gates))
    program.row_upper_ = np.array([0.0] * merged.num_inner + bandwidths)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = starts.astype(np.int32)
    program.a_matrix_.index_ = row_of[order].astype(np.int32)
    program.a_matrix_.value_ = value_of[order]
    return program
