"""The most even flow of a given value through a flow graph.

First as if connections were ample: nodes by shares of their capacities, connections by products of
what their ends carry. Where that exceeds a link or a shared bandwidth, nodes and connections are
evened together within all limits, and then the connections once more with the nodes as they are.
"""

import numpy as np

from planner.even_program import Equations, most_even
from planner.flow_graph import SINK_VERTEX, SOURCE_VERTEX, Bools, Floats, FlowGraph, Gate, Integers
from planner.pools import Pools
from planner.raised_flow import proportional_flow, raised_flow

# Asking for a hair less than the maximum keeps rounding from making the equations unsolvable.
_ASKED_SHARE = 1.0 - 1e-9
# How much less uneven connections matter than uneven nodes while both are sought together.
_CONNECTION_EASE = 30.0
_AMPLE = 1e5  # in units of the flow; as good as unlimited
_NEGLIGIBLE = 1e-9


def even_flow(
    graph: FlowGraph, gates: tuple[Gate, ...], value_tokens_per_s: float, maximum_E: Floats
) -> Floats:
    """Tokens/s of every edge of the graph, together as much as `value_tokens_per_s`, its maximum.

    `maximum_E` is any maximum flow. The even one falls back on it where bandwidth is shared and
    evening would take too long. Edges that would carry less than 1e-9 of the flow carry none, nor
    do those that then lie on no path from the source to the sink.
    """
    unit = value_tokens_per_s * _ASKED_SHARE
    return _without_dust(graph, _evened(graph, gates, maximum_E, unit)) * unit


def _evened(graph: FlowGraph, gates: tuple[Gate, ...], maximum_E: Floats, unit: float) -> Floats:
    """The most even flow as shares of the whole."""
    upper_E = np.minimum(graph.capacities_tokens_per_s / unit, _AMPLE)
    limits = [(gate.bytes_per_token_E * unit / gate.bandwidth_bytes_per_s) for gate in gates]
    pooled_E = _by_pools(graph, upper_E)
    if pooled_E is not None and _fits(pooled_E, upper_E, limits):
        return pooled_E
    nodes_E = _even_nodes(graph, upper_E, limits)
    if nodes_E is not None:
        even_E = _even_connections(graph, upper_E, limits, nodes_E)
        return nodes_E if even_E is None else even_E
    wished_E = proportional_flow(graph, upper_E) if pooled_E is None else pooled_E
    if not limits:
        return raised_flow(graph, upper_E=upper_E, wished_E=wished_E)
    return _towards(wished_E, maximum_E / unit, upper_E, limits)


def _without_dust(graph: FlowGraph, flow_E: Floats) -> Floats:
    """Solvers leave 1e-13 of the flow on edges that should carry none, and routers would use it."""
    carries = flow_E > _NEGLIGIBLE
    if (carries == (flow_E > 0)).all():
        return flow_E
    tails, heads = graph.tails[carries], graph.heads[carries]
    on_path = np.logical_and(
        _reached(SOURCE_VERTEX, tails, heads, num_vertices=graph.num_vertices),
        _reached(SINK_VERTEX, heads, tails, num_vertices=graph.num_vertices),
    )
    kept = carries & on_path[graph.tails] & on_path[graph.heads]
    return np.where(kept, flow_E, 0.0)


def _reached(start: int, tails: Integers, heads: Integers, *, num_vertices: int) -> Bools:
    """The vertices that edges tails[e] -> heads[e] lead to from `start`, itself included."""
    reached = np.zeros(num_vertices, dtype=np.bool_)
    reached[start] = True
    while True:
        further = heads[reached[tails] & ~reached[heads]]
        if not len(further):
            return reached
        reached[further] = True


def _fits(flow_E: Floats, upper_E: Floats, limits: list[Floats]) -> bool:
    return bool((flow_E <= upper_E * (1 + _NEGLIGIBLE)).all()) and all(
        float(limit @ flow_E) <= 1 for limit in limits
    )


def _towards(wished_E: Floats, maximum_E: Floats, upper_E: Floats, limits: list[Floats]) -> Floats:
    """The mix of both flows with most of the wished one that fits."""
    excess_E = wished_E - maximum_E
    rooms = [
        (upper_E - maximum_E)[excess_E > 0] / excess_E[excess_E > 0],
        *((1 - limit @ maximum_E) / (limit @ excess_E) for limit in limits if limit @ excess_E > 0),
    ]
    share = min(1.0, *(float(np.min(room, initial=1.0)) for room in rooms))
    return maximum_E + max(0.0, share) * excess_E


def _by_pools(graph: FlowGraph, upper_E: Floats) -> Floats | None:
    """The most even flow if connections were ample, as shares of the whole.

    Vertices with the same successors pour into one pool, which these draw from; a connection
    carries the product of what its ends pour and draw over what the pool holds.
    """
    count = len(graph.names)
    pools = Pools(graph)
    node_caps = np.where(pools.leads_on, upper_E[:count], 0.0)
    edges = pools.edges
    to_sink = edges[graph.heads[edges] == SINK_VERTEX]
    last = (graph.tails[to_sink] - 2) // 2
    node_caps[last] = np.minimum(node_caps[last], upper_E[to_sink])
    drawn = pools.draw_of_edge >= 0
    num_draws = len(pools.draw_heads)
    draw_caps = np.bincount(pools.draw_of_edge[drawn], upper_E[edges[drawn]], minlength=num_draws)
    draw_columns = count + np.arange(num_draws)
    nodes = np.arange(count)
    pours = pools.pool_of_node >= 0
    is_inner = pools.draw_pools != pools.source_pool
    signs = np.where(is_inner, -1.0, 1.0)
    solution = most_even(
        Equations(
            rows=np.concatenate(
                (
                    nodes,
                    pools.draw_heads,
                    count + pools.pool_of_node[pours],
                    count + pools.draw_pools,
                )
            ),
            columns=np.concatenate((nodes, draw_columns, nodes[pours], draw_columns)),
            values=np.concatenate(
                (-np.ones(count), np.ones(num_draws), np.ones(int(pours.sum())), signs)
            ),
            right_sides_R=np.where(
                np.arange(count + pools.num_pools) == count + pools.source_pool, 1.0, 0.0
            ),
        ),
        weights_V=np.concatenate(
            (
                _at_least_tiny(upper_E[:count]),
                _CONNECTION_EASE * _at_least_tiny(upper_E[pools.draw_heads]),
            )
        ),
        upper_V=np.concatenate((node_caps, draw_caps)),
    )
    if solution is None:
        return None
    through, draws = solution[:count], solution[count:]
    held = np.bincount(pools.draw_pools, draws, minlength=pools.num_pools)
    poured = np.ones(graph.num_vertices)
    poured[2:] = np.repeat(through, 2)
    flow_E = np.zeros(len(graph.tails))
    flow_E[:count] = through
    flow_E[edges] = poured[graph.tails[edges]]
    draw = pools.draw_of_edge[drawn]
    share = np.divide(
        draws[draw],
        held[pools.draw_pools[draw]],
        out=np.zeros(len(draw)),
        where=held[pools.draw_pools[draw]] > 0,
    )
    flow_E[edges[drawn]] *= share
    return flow_E


def _even_nodes(graph: FlowGraph, upper_E: Floats, limits: list[Floats]) -> Floats | None:
    """A flow through the graph as it is, even over the nodes first, as shares of the whole."""
    count, num_edges = len(graph.names), len(graph.tails)
    num_vertices = graph.num_vertices - 1  # without SINK, whose equation follows from the others
    row_of_vertex = np.maximum(np.arange(graph.num_vertices) - 1, 0)
    leaving = np.arange(num_edges)
    entering = np.flatnonzero(graph.heads != SINK_VERTEX)
    right_sides = np.zeros(num_vertices)
    right_sides[0] = -1.0
    carries = np.ones(graph.num_vertices)
    carries[2:] = np.repeat(_at_least_tiny(upper_E[:count]), 2)
    weights = _CONNECTION_EASE * _products(graph, carries)
    weights[:count] = carries[2::2]
    return _solve(
        rows=np.concatenate((row_of_vertex[graph.tails], row_of_vertex[graph.heads[entering]])),
        columns=np.concatenate((leaving, entering)),
        values=np.concatenate((-np.ones(num_edges), np.ones(len(entering)))),
        right_sides=right_sides,
        weights=weights,
        upper=upper_E,
        limits=limits,
    )


def _even_connections(
    graph: FlowGraph, upper_E: Floats, limits: list[Floats], flow_E: Floats
) -> Floats | None:
    """`flow_E` with the same flows of nodes, and connections as near to products as they fit."""
    count, num_edges = len(graph.names), len(graph.tails)
    through = np.ones(graph.num_vertices)
    through[2:] = np.repeat(flow_E[:count], 2)
    links = np.arange(count, num_edges)
    rows = np.concatenate((graph.tails[links], graph.num_vertices + graph.heads[links]))
    columns = np.concatenate((links, links)) - count
    solution = _solve(
        rows=rows,
        columns=columns,
        values=np.ones(len(rows)),
        right_sides=np.bincount(
            rows, flow_E[count + columns], minlength=2 * graph.num_vertices
        ).astype(np.float64),
        weights=_products(graph, _at_least_tiny(through))[count:],
        upper=upper_E[count:],
        limits=[limit[count:] for limit in limits],
    )
    return None if solution is None else np.concatenate((flow_E[:count], solution))


def _products(graph: FlowGraph, carries: Floats) -> Floats:
    """For every edge, the product of its ends' flows over the sum of its tail's successors'."""
    count = len(graph.names)
    tails, heads = graph.tails[count:], graph.heads[count:]
    following = np.bincount(tails, carries[heads], minlength=graph.num_vertices)
    products = np.ones(len(graph.tails))
    products[count:] = carries[tails] * carries[heads] / following[tails]
    return _at_least_tiny(products)


def _solve(
    *,
    rows: Integers,
    columns: Integers,
    values: Floats,
    right_sides: Floats,
    weights: Floats,
    upper: Floats,
    limits: list[Floats],
) -> Floats | None:
    """`most_even` with a row and a slack in [0, 1] for each limit: limit @ x <= 1."""
    num_rows, num_columns = len(right_sides), len(weights)
    for number, limit in enumerate(limits):
        used = np.flatnonzero(limit)
        row, slack = num_rows + number, num_columns + number
        rows = np.concatenate((rows, np.full(len(used) + 1, row)))
        columns = np.concatenate((columns, used, [slack]))
        values = np.concatenate((values, limit[used], [-1.0]))
    count = len(limits)
    solution = most_even(
        Equations(
            rows=rows,
            columns=columns,
            values=values,
            right_sides_R=np.concatenate((right_sides, np.zeros(count))),
        ),
        weights_V=np.concatenate((weights, np.full(count, _AMPLE))),
        upper_V=np.concatenate((upper, np.ones(count))),
    )
    return None if solution is None else solution[:num_columns]


def _at_least_tiny(shares: Floats) -> Floats:
    return np.maximum(shares, _NEGLIGIBLE)
