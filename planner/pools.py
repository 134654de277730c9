"""The vertices of a flow graph by what they lead to."""

import numpy as np

from planner.flow_graph import SINK_VERTEX, SOURCE_VERTEX, FlowGraph, Integers


class Pools:
    """The vertices of a graph by what they lead to; `edges` are its usable connections, sorted.

    A draw is one pool's connection to one node: `draw_of_edge[i]` is that of `edges[i]`, -1 for
    one to SINK. `pool_of_node` is -1 for nodes that lead to SINK or nowhere (see `leads_on`).
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
        num_draws = 0
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
                first_draw.append(num_draws)
                num_draws += end - start
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
