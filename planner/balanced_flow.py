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
from planner.even_program import Equations, most_even
from planner.flow_graph import (
    SINK_VERTEX,
    SOURCE_VERTEX,
    Floats,
    FlowGraph,
    Gate,
    Integers,
    build_flow_graph,
    gates_of,
)
from planner.max_flow import max_flow, routing_weights
from planner.twins import merge_twins

# Asking for a hair less than the maximum keeps rounding from making the equations unsolvable.
_ASKED_SHARE = 1.0 - 1e-9
# How much less uneven connections matter than uneven nodes while both are sought together.
_CONNECTION_EASE = 30.0
_AMPLE = 1e3  # in units of the flow; as good as unlimited
_NEGLIGIBLE = 1e-9


def balanced_flow(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
) -> Flow:
    """`max_flow` with the same value and minimum cut, but spread most evenly.

    Raises InvalidPlacement, and EvenProgramFailed should the method not converge.
    """
    maximum = max_flow(problem, placement, partial_inference=partial_inference, max_hops=max_hops)
    if maximum.value_tokens_per_s <= 0:
        return maximum
    graph = build_flow_graph(
        problem, placement, partial_inference=partial_inference, max_hops=max_hops
    )
    gates = gates_of(problem, graph)
    merged = merge_twins(graph, gates)
    flow_M = _even_flows(merged.graph, merged.gates, maximum.value_tokens_per_s)
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


def _even_flows(graph: FlowGraph, gates: tuple[Gate, ...], value_tokens_per_s: float) -> Floats:
    """Tokens/s of every edge of the graph."""
    unit = value_tokens_per_s * _ASKED_SHARE
    upper_E = np.minimum(graph.capacities_tokens_per_s / unit, _AMPLE)
    pooled_E = _by_pools(graph, upper_E)
    if (pooled_E <= upper_E * (1 + _NEGLIGIBLE)).all() and all(
        gate.bytes_per_token_E @ pooled_E * unit <= gate.bandwidth_bytes_per_s for gate in gates
    ):
        return pooled_E * unit
    limits = [(gate.bytes_per_token_E * unit / gate.bandwidth_bytes_per_s) for gate in gates]
    nodes_E = _even_nodes(graph, upper_E, limits)
    return _even_connections(graph, upper_E, limits, nodes_E) * unit


def _by_pools(graph: FlowGraph, upper_E: Floats) -> Floats:
    """The most even flow if connections were ample, as shares of the whole.

    Vertices with the same successors pour into one pool, which these draw from; a connection
    carries the product of what its ends pour and draw over what the pool holds.
    """
    count = len(graph.names)
    pools = _Pools(graph)
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


class _Pools:
    """The vertices of a graph by what they lead to; `edges` are its usable connections, sorted.

    A draw is one pool's connection to one node: `draw_of_edge[i]` is that of `edges[i]`, -1 for
    one to SINK. `pool_of_node` is -1 for nodes that lead to SINK or nowhere (`leads_on` tells).
    """

    def __init__(self, graph: FlowGraph) -> None:
        count = len(graph.names)
        runs = np.ones(graph.num_vertices, dtype=np.bool_)
        runs[2:] = np.repeat(graph.capacities_tokens_per_s[:count] > 0, 2)
        usable = (graph.capacities_tokens_per_s > 0) & runs[graph.tails] & runs[graph.heads]
        usable[:count] = False
        edges = np.flatnonzero(usable)
        edges = edges[np.lexsort((graph.heads[edges], graph.tails[edges]))]
        tails, heads = graph.tails[edges], graph.heads[edges]
        pool_of: dict[bytes, int] = {}
        self.edges: Integers = edges
        self.draw_of_edge: Integers = np.full(len(edges), -1)
        self.pool_of_node: Integers = np.full(count, -1)
        self.leads_on = np.zeros(count, dtype=np.bool_)
        first_draw: list[int] = []
        draw_heads: list[Integers] = []
        self.source_pool = -1
        starts = np.flatnonzero(np.diff(tails, prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(edges)], strict=True):
            tail, following = int(tails[start]), heads[start:end]
            if tail != SOURCE_VERTEX:
                self.leads_on[(tail - 2) // 2] = True
                if following[0] == SINK_VERTEX:
                    continue
            key = following.tobytes() if tail != SOURCE_VERTEX else b"source"
            if key not in pool_of:
                pool_of[key] = len(pool_of)
                first_draw.append(sum(map(len, draw_heads)))
                draw_heads.append((following - 2) // 2)
            pool = pool_of[key]
            if tail == SOURCE_VERTEX:
                self.source_pool = pool
            else:
                self.pool_of_node[(tail - 2) // 2] = pool
            self.draw_of_edge[start:end] = first_draw[pool] + np.arange(end - start)
        self.num_pools = len(pool_of)
        self.draw_heads: Integers = np.concatenate(draw_heads)
        self.draw_pools: Integers = np.repeat(
            np.arange(len(draw_heads)), [len(h) for h in draw_heads]
        )


def _even_nodes(graph: FlowGraph, upper_E: Floats, limits: list[Floats]) -> Floats:
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
) -> Floats:
    """`flow_E` with its nodes' flows kept and its connections as near to products as they fit."""
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
    return np.concatenate((flow_E[:count], solution))


def _products(graph: FlowGraph, carries: Floats) -> Floats:
    """For every edge what its ends carry, multiplied, over what its tail's successors carry."""
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
) -> Floats:
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
    return solution[:num_columns]


def _at_least_tiny(shares: Floats) -> Floats:
    return np.maximum(shares, _NEGLIGIBLE)


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
