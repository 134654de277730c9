"""The directed graph of a placement, with capacities in tokens/s (Helix §4.3).

Vertices are SOURCE and SINK (the coordinator) and, for every node that holds layers,
(node, "in") and (node, "out"); the edge between these two is the node's compute capacity.

A hop limit M is a property of the graph: where the longest way through it has more than M stages,
a node's level is the fewest stages before it and only connections to the next level stay. So every
pipeline that a router may build of what is left has at most M stages, whatever it did before.
Shared bandwidth is none: the sum of several edges, each in its own bytes per token, is no edge of
a graph, so it comes as `Gate`s beside it.
"""

from dataclasses import dataclass
from typing import TypeAlias

import networkx as nx

from planner.capacity import (
    link_capacity_tokens_per_s,
    max_layers,
    shared_bytes_per_token,
    throughput_tokens_per_s,
)
from planner.domain.cluster import SINK, SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem

Vertex: TypeAlias = str | tuple[str, str]
FlowGraph: TypeAlias = "nx.DiGraph[Vertex]"


def entry(node_name: str) -> Vertex:
    """The vertex that a node's incoming links reach (the paper's c_in)."""
    return (node_name, "in")


def exit_of(node_name: str) -> Vertex:
    """The vertex that a node's outgoing links leave (the paper's c_out)."""
    return (node_name, "out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A shared bandwidth over a flow graph: sum of bytes_per_token[e] * flow(e) <= bandwidth."""

    name: str
    bandwidth_bytes_per_s: float
    bytes_per_token: dict[tuple[Vertex, Vertex], float]


def name_of(vertex: Vertex) -> str:
    """SOURCE, SINK or the node that the vertex belongs to."""
    return vertex if isinstance(vertex, str) else vertex[0]


def edges_with_capacity(graph: FlowGraph) -> list[tuple[Vertex, Vertex, float]]:
    """(tail, head, tokens/s) of every edge, compute and link."""
    return [(tail, head, data["capacity"]) for tail, head, data in graph.edges(data=True)]


def check_placement(problem: Problem, placement: Placement) -> None:
    """Raises InvalidPlacement for an unknown node, layers beyond the model, or too many layers."""
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
        limit = max_layers(problem, name)
        if len(held) > limit:
            raise InvalidPlacement(
                f"node {name!r} holds {len(held)} layers {held} but its profile "
                f"{problem.cluster.node(name).compute_profile!r} has memory for {limit}; "
                "give it fewer"
            )


def connects(before: LayerRange, after: LayerRange, *, partial_inference: bool) -> bool:
    """Whether `after` holds the layers needed right after `before` (Helix §4.4, constraint 4).

    With partial inference s_j <= e_i < e_j: node j runs [e_i, e_j) only. Without, e_i = s_j.
    """
    if partial_inference:
        return after.first <= before.end < after.end
    return after.first == before.end


def build_flow_graph(
    problem: Problem,
    placement: Placement,
    *,
    partial_inference: bool,
    max_hops: int | None = None,
) -> FlowGraph:
    """The flow graph: every valid connection that has a link, with edge attribute `capacity`.

    With `max_hops`, only the connections that the hop limit leaves (above). Acyclic, because every
    connection leads to a later end. Raises InvalidPlacement.
    """
    check_placement(problem, placement)
    graph: FlowGraph = nx.DiGraph()
    graph.add_nodes_from((SOURCE, SINK))
    held_by_name = sorted(placement.layers.items())
    for name, held in held_by_name:
        capacity = throughput_tokens_per_s(problem, name, len(held))
        graph.add_edge(entry(name), exit_of(name), capacity=capacity)
        if held.first == 0:
            _add_link(graph, problem, SOURCE, name)
        if held.end == problem.model.num_layers:
            _add_link(graph, problem, name, SINK)
    component = {name: placement.component_of(name) for name in placement.layers}
    for name, held in held_by_name:
        for other_name, other_held in held_by_name:
            if component[name] == component[other_name] and connects(
                held, other_held, partial_inference=partial_inference
            ):
                _add_link(graph, problem, name, other_name)
    if max_hops is not None:
        _limit_hops(graph, max_hops)
    return graph


def gates_of(problem: Problem, graph: FlowGraph) -> tuple[Gate, ...]:
    """The shared bandwidths that some edge of the graph needs, in the cluster's order."""
    gates = []
    for shared in problem.cluster.shared:
        members = problem.cluster.members_of(shared)
        bytes_per_token: dict[tuple[Vertex, Vertex], float] = {}
        for tail, head in graph.edges():
            source, target = name_of(tail), name_of(head)
            if source == target:
                continue
            size = shared_bytes_per_token(problem, shared, source, target, members=members)
            if size > 0:
                bytes_per_token[tail, head] = size
        if bytes_per_token:
            gates.append(
                Gate(
                    name=shared.name,
                    bandwidth_bytes_per_s=shared.bandwidth_bytes_per_s,
                    bytes_per_token=bytes_per_token,
                )
            )
    return tuple(gates)


def longest_path_stages(graph: FlowGraph) -> int:
    """Most stages on any way from SOURCE to SINK over edges with capacity; 0 without any."""
    stages: dict[Vertex, int] = {SOURCE: 0}
    for vertex in nx.topological_sort(graph):
        if vertex not in stages:
            continue
        for head, data in graph[vertex].items():
            if data["capacity"] > 0:
                step = 1 if name_of(vertex) == name_of(head) else 0
                stages[head] = max(stages.get(head, 0), stages[vertex] + step)
    return stages.get(SINK, 0)


def _limit_hops(graph: FlowGraph, max_hops: int) -> None:
    if longest_path_stages(graph) <= max_hops:
        return
    levels: dict[Vertex, int] = {SOURCE: 0}
    waiting: list[Vertex] = [SOURCE]
    for vertex in waiting:
        for head, data in graph[vertex].items():
            if data["capacity"] > 0 and head not in levels:
                # Both vertices of a node have its level; breadth first, so the first is the least.
                levels[head] = levels[vertex] + (name_of(vertex) != name_of(head))
                waiting.append(head)
    graph.remove_edges_from(
        [
            (tail, head)
            for tail, head in graph.edges()
            if name_of(tail) != name_of(head)
            and (
                tail not in levels
                or (levels[tail] > max_hops if head == SINK else levels[head] <= levels[tail])
            )
        ]
    )


def _add_link(graph: FlowGraph, problem: Problem, source: str, target: str) -> None:
    capacity = link_capacity_tokens_per_s(problem, source, target)
    if capacity > 0:
        tail = SOURCE if source == SOURCE else exit_of(source)
        head = SINK if target == SINK else entry(target)
        graph.add_edge(tail, head, capacity=capacity)
