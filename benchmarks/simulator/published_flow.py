"""The published simulator's routing weights and link rates, which its figures depend on.

Which of the many maximum flows is found decides who is paired with whom. So the flow is found as
there: `networkx.maximum_flow` on a graph with network cards and the vertices in the order of the
problem's nodes. A request's messages get the link's bandwidth, but no more of either network card
than the link's share of the card's flow.
"""

from collections.abc import Mapping
from dataclasses import replace

import networkx as nx

from planner.capacity import throughput_tokens_per_s
from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.placement import Placement
from planner.domain.problem import Problem

Weights = dict[str, dict[str, float]]


def published_weights(
    problem: Problem, placement: Placement, *, partial_inference: bool, card_bytes_per_s: float
) -> Weights:
    """Tokens/s over every hop that the flow uses."""
    token = problem.model.token_bytes
    activation = problem.model.activation_bytes_per_token + token
    held = {
        node.name: placement.layers[node.name]
        for node in problem.cluster.nodes
        if node.name in placement.layers
    }
    edges: list[tuple[tuple[str, str], tuple[str, str], float]] = [
        ((SOURCE, ""), (SOURCE, "out"), card_bytes_per_s / token),
        ((SINK, "in"), (SINK, ""), card_bytes_per_s / token),
    ]
    for name, layers in held.items():
        card = card_bytes_per_s / activation
        speed = throughput_tokens_per_s(problem, name, len(layers))
        edges.append(((name, "in"), (name, "start"), card))
        edges.append(((name, "start"), (name, "end"), speed))
        edges.append(((name, "end"), (name, "out"), card))

    def add_link(source: str, target: str, size: float) -> None:
        ends = (COORDINATOR if end in (SOURCE, SINK) else end for end in (source, target))
        link = problem.cluster.link_between(*ends)
        if link is not None:
            edges.append(((source, "out"), (target, "in"), link.bandwidth_bytes_per_s / size))

    for name, layers in held.items():
        if layers.first == 0:
            add_link(SOURCE, name, token)
        if layers.end == problem.model.num_layers:
            add_link(name, SINK, token)
    for source, before in held.items():
        for target, after in held.items():
            enters = (
                after.first <= before.end < after.end
                if partial_inference
                else after.first == before.end
            )
            if source != target and enters:
                add_link(source, target, activation)
    # Numbers for vertices: preflow-push walks through sets, and the order of strings in a set
    # differs between processes.
    number_of: dict[tuple[str, str], int] = {}
    for tail, head, _ in edges:
        number_of.setdefault(tail, len(number_of))
        number_of.setdefault(head, len(number_of))
    graph: nx.DiGraph[int] = nx.DiGraph()
    for tail, head, capacity in edges:
        graph.add_edge(number_of[tail], number_of[head], capacity=capacity)
    _, flows = nx.maximum_flow(graph, number_of[SOURCE, ""], number_of[SINK, ""])
    weights: Weights = {}
    for tail, head, _ in edges:
        flow = flows[number_of[tail]][number_of[head]]
        if tail[1] == "out" and flow > 1e-6:
            weights.setdefault(tail[0], {})[head[0]] = flow
    return weights


def with_shared_cards(
    problem: Problem, weights: Mapping[str, Mapping[str, float]], *, card_bytes_per_s: float
) -> Problem:
    """The problem whose links have no more than their share of either end's network card."""
    into: dict[str, float] = {}
    for targets in weights.values():
        for target, flow in targets.items():
            into[target] = into.get(target, 0.0) + flow
    links = []
    for link in problem.cluster.links:
        source = SOURCE if link.source == COORDINATOR else link.source
        target = SINK if link.target == COORDINATOR else link.target
        flow = weights.get(source, {}).get(target, 0.0)
        if flow > 0:
            share = min(flow / sum(weights[source].values()), flow / into[target])
            link = replace(
                link,
                bandwidth_bytes_per_s=min(link.bandwidth_bytes_per_s, share * card_bytes_per_s),
            )
        links.append(link)
    return replace(problem, cluster=replace(problem.cluster, links=tuple(links)))
