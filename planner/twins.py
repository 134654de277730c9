"""Merges indistinguishable nodes of a flow graph into one.

Twins have the same speed and the same connections of the same capacities and shared bandwidths. An
even flow treats them alike, so it is found on the merged graph and split equally: a cluster of
1000 machines has some hundred kinds and places of them.
"""

from dataclasses import dataclass

import numpy as np

from planner.flow_graph import FlowGraph, Gate, Integers

_FIRST_ENTRY = 2  # SOURCE and SINK come before


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A graph with each group of twins as one node, named as the first of them.

    Edge e of the original has a share 1 / sizes_E[e] of the flow of merged edge `edge_of_E[e]`.
    """

    graph: FlowGraph
    gates: tuple[Gate, ...]
    edge_of_E: Integers
    sizes_E: Integers


def merge_twins(graph: FlowGraph, gates: tuple[Gate, ...]) -> Merged:
    """The merged graph: capacities added up, bytes per token as they are."""
    count = len(graph.names)
    group_of, firsts = _groups(graph, gates)
    vertex_of = np.arange(graph.num_vertices)
    vertex_of[_FIRST_ENTRY:] = (
        _FIRST_ENTRY + 2 * np.repeat(group_of, 2) + np.tile(np.array([0, 1]), count)
    )
    num_groups = len(firsts)
    num_vertices = _FIRST_ENTRY + 2 * num_groups
    cells = vertex_of[graph.tails[count:]] * num_vertices + vertex_of[graph.heads[count:]]
    _, examples, merged_of = np.unique(cells, return_index=True, return_inverse=True)
    edge_of_E = np.concatenate((group_of, num_groups + merged_of))
    sizes = np.bincount(edge_of_E)
    chosen = np.concatenate((firsts, count + examples))
    return Merged(
        graph=FlowGraph(
            names=tuple(graph.names[first] for first in firsts.tolist()),
            tails=vertex_of[graph.tails[chosen]],
            heads=vertex_of[graph.heads[chosen]],
            capacities_tokens_per_s=graph.capacities_tokens_per_s[chosen] * sizes,
        ),
        gates=tuple(
            Gate(
                name=gate.name,
                bandwidth_bytes_per_s=gate.bandwidth_bytes_per_s,
                bytes_per_token_E=gate.bytes_per_token_E[chosen],
            )
            for gate in gates
        ),
        edge_of_E=edge_of_E,
        sizes_E=sizes[edge_of_E],
    )


def _groups(graph: FlowGraph, gates: tuple[Gate, ...]) -> tuple[Integers, Integers]:
    """The number of each node's group of twins, and of each group its first node."""
    count = len(graph.names)
    limits = np.stack(
        [graph.capacities_tokens_per_s, *(gate.bytes_per_token_E for gate in gates)], axis=1
    )
    marks: list[list[bytes]] = [[limits[node].tobytes()] for node in range(count)]
    for own, other, side in ((graph.tails, graph.heads, 1), (graph.heads, graph.tails, 0)):
        order = count + np.lexsort((other[count:], own[count:]))
        ends = _FIRST_ENTRY + side + 2 * np.arange(count)
        begins = np.searchsorted(own[order], ends, side="left")
        stops = np.searchsorted(own[order], ends, side="right")
        for node in range(count):
            edges = order[begins[node] : stops[node]]
            marks[node] += [other[edges].tobytes(), limits[edges].tobytes()]
    number_of: dict[tuple[bytes, ...], int] = {}
    firsts: list[int] = []
    group_of = np.zeros(count, dtype=np.int64)
    for node, mark in enumerate(marks):
        key = tuple(mark)
        if key not in number_of:
            number_of[key] = len(number_of)
            firsts.append(node)
        group_of[node] = number_of[key]
    return group_of, np.array(firsts, dtype=np.int64)
