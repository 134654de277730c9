"""The directed graph of a placement, with capacities in tokens/s (Helix §4.3).

Vertices are SOURCE and SINK (the coordinator) and, for every node that holds layers, an entry and
an exit (the paper's c_in and c_out); the edge between these two is the node's compute capacity.

A hop limit M is a property of the graph: where the longest way through it has more than M stages,
a node's level is the fewest stages before it and only connections to the next level stay. So every
pipeline that a router may build of what is left has at most M stages, whatever it did before.
Shared bandwidth is none: the sum of several edges, each in its own bytes per token, is no edge of
a graph, so it comes as `Gate`s beside it.

A graph is arrays, one entry per edge: a cluster of 1000 nodes has 100 000 connections.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.capacity import LayerLimits, layer_limits, throughput_tokens_per_s
from planner.domain.cluster import COORDINATOR, SINK, SOURCE, SharedBandwidth
from planner.domain.errors import InvalidPlacement
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.link_matrix import link_capacities_tokens_per_s

Floats: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Integers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Bools: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

if TYPE_CHECKING:
    from networkx import DiGraph

Vertex: TypeAlias = str | tuple[str, str]
SOURCE_VERTEX, SINK_VERTEX = 0, 1
_FIRST_ENTRY = 2
_UNREACHED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowGraph:
    """Edges tails[e] -> heads[e]; the first ones, one per name in order, are the nodes' own."""

    names: tuple[str, ...]
    tails: Integers
    heads: Integers
    capacities_tokens_per_s: Floats

    @property
    def num_vertices(self) -> int:
        return _FIRST_ENTRY + 2 * len(self.names)

    def ends_of_connections(self) -> list[tuple[str, str]]:
        """(source, target) of every edge after the nodes' own: SOURCE, SINK or nodes."""
        end_names = [SOURCE, SINK, *(name for name in self.names for _ in range(2))]
        start = len(self.names)
        return [
            (end_names[tail], end_names[head])
            for tail, head in zip(
                self.tails[start:].tolist(), self.heads[start:].tolist(), strict=True
            )
        ]

    def to_networkx(self) -> "DiGraph[Vertex]":
        """The graph for networkx's flow algorithms: SOURCE, SINK, and (name, "in" or "out").

        The `capacity` of an edge is in tokens/s.
        """
        from networkx import DiGraph  # takes a while to load

        vertices: list[Vertex] = [SOURCE, SINK]
        vertices += [(name, side) for name in self.names for side in ("in", "out")]
        graph: DiGraph[Vertex] = DiGraph()
        graph.add_nodes_from(vertices)
        for tail, head, capacity in zip(
            self.tails.tolist(),
            self.heads.tolist(),
            self.capacities_tokens_per_s.tolist(),
            strict=True,
        ):
            graph.add_edge(vertices[tail], vertices[head], capacity=capacity)
        return graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A shared bandwidth over a flow graph: sum of bytes_per_token_E[e] * flow(e) <= bandwidth."""

    name: str
    bandwidth_bytes_per_s: float
    bytes_per_token_E: Floats


class FlowGraphs:
    """Makes the flow graphs of many placements of one problem."""

    def __init__(
        self, problem: Problem, *, partial_inference: bool, max_hops: int | None = None
    ) -> None:
        self._problem = problem
        self._partial_inference = partial_inference
        self._max_hops = max_hops
        nodes = problem.cluster.nodes
        self._number_of = {node.name: number for number, node in enumerate(nodes)}
        self._limits_of = {node.name: layer_limits(problem, node.name) for node in nodes}
        self._links = link_capacities_tokens_per_s(
            problem, [*(node.name for node in nodes), COORDINATOR]
        )

    def graph_of(self, placement: Placement) -> FlowGraph:
        """The graph of all valid connections with a link, within the hop limit if there is one.

        Acyclic, because every connection leads to a later end. Raises InvalidPlacement.
        """
        problem = self._problem
        check_placement(problem, placement, limits_of=self._limits_of)
        names = tuple(sorted(placement.layers))
        ranges = [placement.layers[name] for name in names]
        firsts: Integers = np.array([held.first for held in ranges], dtype=np.int64)
        ends: Integers = np.array([held.end for held in ranges], dtype=np.int64)
        connects = self._connects(firsts, ends)
        if placement.components:
            component = np.array([placement.component_of(name) for name in names])
            connects &= component[None, :] == component[:, None]
        speeds = [
            throughput_tokens_per_s(problem, name, len(held))
            for name, held in zip(names, ranges, strict=True)
        ]
        ids: Integers = np.array([self._number_of[name] for name in names], dtype=np.int64)
        links_before = self._links[-1, ids]
        links_after = self._links[ids, -1]
        between = self._links[np.ix_(ids, ids)]
        entries = _FIRST_ENTRY + 2 * np.arange(len(names))
        exits = entries + 1
        before, after = np.nonzero(connects & (between > 0))
        opening = np.flatnonzero((firsts == 0) & (links_before > 0))
        closing = np.flatnonzero((ends == problem.model.num_layers) & (links_after > 0))
        graph = FlowGraph(
            names=names,
            tails=np.concatenate(
                (entries, exits[before], np.full(len(opening), SOURCE_VERTEX), exits[closing])
            ),
            heads=np.concatenate(
                (exits, entries[after], entries[opening], np.full(len(closing), SINK_VERTEX))
            ),
            capacities_tokens_per_s=np.concatenate(
                (speeds, between[before, after], links_before[opening], links_after[closing])
            ),
        )
        return graph if self._max_hops is None else _limited(graph, max_hops=self._max_hops)

    def _connects(self, firsts: Integers, ends: Integers) -> Bools:
        """[i, j]: whether j holds the layers needed right after i (Helix §4.4, constraint 4).

        With partial inference s_j <= e_i < e_j: node j runs [e_i, e_j) only. Without, e_i = s_j.
        """
        connects: Bools = firsts[None, :] == ends[:, None]
        if self._partial_inference:
            connects = (firsts[None, :] <= ends[:, None]) & (ends[:, None] < ends[None, :])
        return connects


def build_flow_graph(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
) -> FlowGraph:
    """The flow graph of one placement; for many of one problem make `FlowGraphs`."""
    graphs = FlowGraphs(problem, partial_inference=partial_inference, max_hops=max_hops)
    return graphs.graph_of(placement)


def check_placement(
    problem: Problem,
    placement: Placement,
    *,
    limits_of: Mapping[str, LayerLimits] | None = None,
) -> None:
    """Raise InvalidPlacement for an unknown node, layers beyond the model, or too many layers.

    `limits_of` are those of all nodes, where they are known already.
    """
    num_layers = problem.model.num_layers
    for name, held in placement.layers.items():
        if not problem.cluster.has_node(name):
            raise InvalidPlacement(
                f"the placement gives layers {held} to {name!r}, which is not a node of cluster "
                f"{problem.cluster.name!r}; use the cluster's node names"
            )
        if held.end > num_layers:
            raise InvalidPlacement(
                f"node {name!r} holds layers {held} but model {problem.model.name!r} has "
                f"{num_layers} layers; the end must be at most {num_layers}"
            )
        limits = layer_limits(problem, name) if limits_of is None else limits_of[name]
        limit = limits.of(held.first, held.end, num_layers=num_layers)
        if len(held) > limit:
            where = "" if limit == limits.middle else " there, beside what the model's ends take"
            raise InvalidPlacement(
                f"node {name!r} holds {len(held)} layers {held} but its profile "
                f"{problem.cluster.node(name).compute_profile!r} has memory for {limit}{where}; "
                "give it fewer"
            )


def gates_of(problem: Problem, graph: FlowGraph) -> tuple[Gate, ...]:
    """The shared bandwidths that some edge of the graph needs, in the cluster's order."""
    gates = []
    for shared in problem.cluster.shared:
        size = _shared_bytes_per_token(problem, graph, shared)
        if (size > 0).any():
            gates.append(
                Gate(
                    name=shared.name,
                    bandwidth_bytes_per_s=shared.bandwidth_bytes_per_s,
                    bytes_per_token_E=size,
                )
            )
    return tuple(gates)


def longest_path_stages(graph: FlowGraph) -> int:
    """Most stages on any way from SOURCE to SINK over edges with capacity; 0 without any."""
    stages = _stages_up_to(graph, least=False)
    last = (graph.tails[graph.heads == SINK_VERTEX] - _FIRST_ENTRY) // 2
    runs = graph.capacities_tokens_per_s[last] > 0
    return int(stages[last[runs]].max(initial=0))


def _shared_bytes_per_token(problem: Problem, graph: FlowGraph, shared: SharedBandwidth) -> Floats:
    """Bytes of the shared bandwidth that a token takes on each edge."""
    members = problem.cluster.members_of(shared)
    is_member = np.array(
        [COORDINATOR in members] * _FIRST_ENTRY
        + [name in members for name in graph.names for _ in range(2)]
    )
    ours, theirs = is_member[graph.tails], is_member[graph.heads]
    if shared.direction == "ingress":
        ours, theirs = theirs, ours
    passes = ours & ~theirs if shared.scope == "region" else ours.copy()
    passes[: len(graph.names)] = False
    sizes = np.where(
        (graph.tails == SOURCE_VERTEX) | (graph.heads == SINK_VERTEX),
        problem.model.token_bytes,
        problem.model.activation_bytes_per_token,
    )
    return np.where(passes, sizes, 0.0)


def _stages_up_to(graph: FlowGraph, *, least: bool) -> Integers:
    """For every node the least or most stages of a path to its end; _UNREACHED without any path.

    All ways grow by one stage at a time; edges without capacity lead nowhere.
    """
    count = len(graph.names)
    runs = graph.capacities_tokens_per_s[:count] > 0
    stages = np.full(count, _UNREACHED)
    is_link = (graph.tails > SINK_VERTEX) & (graph.heads > SINK_VERTEX)
    is_link[:count] = False
    before = (graph.tails[is_link] - _FIRST_ENTRY) // 2
    after = (graph.heads[is_link] - _FIRST_ENTRY) // 2
    frontier = (graph.heads[graph.tails == SOURCE_VERTEX] - _FIRST_ENTRY) // 2
    step = 0
    while frontier.size:
        step += 1
        fresh = frontier[stages[frontier] == _UNREACHED] if least else frontier
        stages[fresh] = step
        goes_on = np.zeros(count, dtype=np.bool_)
        goes_on[fresh] = runs[fresh]
        frontier = np.unique(after[goes_on[before]])
    return stages


def _limited(graph: FlowGraph, *, max_hops: int) -> FlowGraph:
    """The graph with connections to the next level only, where it has a longer way than allowed."""
    if longest_path_stages(graph) <= max_hops:
        return graph
    count = len(graph.names)
    levels = np.zeros(graph.num_vertices, dtype=np.int64)
    levels[SINK_VERTEX] = max_hops + 1
    levels[_FIRST_ENTRY:] = np.repeat(_stages_up_to(graph, least=True), 2)
    runs = np.ones(graph.num_vertices, dtype=np.bool_)
    runs[_FIRST_ENTRY:] = np.repeat(graph.capacities_tokens_per_s[:count] > 0, 2)
    tails, heads = graph.tails, graph.heads
    kept = runs[tails] & (levels[tails] != _UNREACHED) & (levels[heads] > levels[tails])
    kept[:count] = True
    return FlowGraph(
        names=graph.names,
        tails=tails[kept],
        heads=heads[kept],
        capacities_tokens_per_s=graph.capacities_tokens_per_s[kept],
    )
