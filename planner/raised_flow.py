"""A maximum flow that follows a wished one as far as it can, in some Dinic runs.

The wish conserves flow but may exceed capacities. The flow is raised in steps: with connections
and nodes cut to the wish, then to a little more of it, and last to what they really carry. Every
step augments the one before, so the last reaches the maximum, whatever was wished.
"""

import numpy as np

from planner.flow_graph import SINK_VERTEX, SOURCE_VERTEX, Floats, FlowGraph
from planner.integer_flow import IntegerArray, IntegerNetwork, maximum_flow

_SHARES_OF_WISH = (0.7, 1.0, 1.4, 2.5)
_UNITS = 2**40  # of a flow of 1


def raised_flow(graph: FlowGraph, *, upper_E: Floats, wished_E: Floats) -> Floats:
    """Shares of the maximum, 1 together; `upper_E` are capacities in these shares."""
    ample_E = np.minimum(upper_E, 2.0)
    capacity_E = (ample_E * _UNITS).astype(np.int64)
    flow_E: IntegerArray = np.zeros(len(graph.tails), dtype=np.int64)
    for share in _SHARES_OF_WISH:
        wished = np.minimum(ample_E, share * wished_E) * _UNITS
        flow_E = _raised(graph, np.maximum(flow_E, wished.astype(np.int64)), flow_E)
    return _raised(graph, capacity_E, flow_E) / _UNITS


def proportional_flow(graph: FlowGraph, upper_E: Floats) -> Floats:
    """A flow of 1 that every vertex passes on by what the next nodes can carry themselves.

    It conserves flow and heeds no capacity; what leads to no end carries nothing.
    """
    heads, tails = graph.heads, graph.tails
    carries = np.ones(graph.num_vertices)
    carries[2::2] = carries[3::2] = upper_E[: len(graph.names)]
    after: list[list[int]] = [[] for _ in range(graph.num_vertices)]
    waits = np.zeros(graph.num_vertices, dtype=np.int64)
    for edge in np.flatnonzero(upper_E > 0).tolist():
        after[tails[edge]].append(edge)
        waits[heads[edge]] += 1
    order = [vertex for vertex in range(graph.num_vertices) if waits[vertex] == 0]
    for vertex in order:
        for edge in after[vertex]:
            head = int(heads[edge])
            waits[head] -= 1
            if waits[head] == 0:
                order.append(head)
    leads_on = np.zeros(graph.num_vertices, dtype=np.bool_)
    leads_on[SINK_VERTEX] = True
    for vertex in reversed(order):
        leads_on[vertex] |= any(leads_on[heads[edge]] for edge in after[vertex])
    through = np.zeros(graph.num_vertices)
    through[SOURCE_VERTEX] = 1.0
    flow_E = np.zeros(len(tails))
    for vertex in order:
        edges = np.array([edge for edge in after[vertex] if leads_on[heads[edge]]], dtype=np.int64)
        if len(edges) == 0 or through[vertex] == 0:
            continue
        shares = carries[heads[edges]]
        flow_E[edges] = through[vertex] * shares / shares.sum()
        np.add.at(through, heads[edges], flow_E[edges])
    return flow_E


def _raised(graph: FlowGraph, capacity_E: IntegerArray, flow_E: IntegerArray) -> IntegerArray:
    """`flow_E` augmented to the maximum within the capacities."""
    count = len(flow_E)
    found = maximum_flow(
        IntegerNetwork(
            num_vertices=graph.num_vertices,
            source=SOURCE_VERTEX,
            sink=SINK_VERTEX,
            tails=np.concatenate((graph.tails, graph.heads)),
            heads=np.concatenate((graph.heads, graph.tails)),
            capacities=np.concatenate((capacity_E - flow_E, flow_E)),
        )
    )
    raised: IntegerArray = flow_E + found.flows[:count] - found.flows[count:]
    return raised
