"""Dinic's algorithm against preflow-push of another library."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx.algorithms.flow import preflow_push

from planner.integer_flow import IntegerNetwork, maximum_flow
from tests.examples import examples

SOURCE, SINK = 0, 1


@st.composite
def networks(draw):
    num_vertices = draw(st.integers(2, 9))
    vertices = st.integers(0, num_vertices - 1)
    pairs = draw(st.lists(st.tuples(vertices, vertices), unique=True, max_size=30))
    pairs = [(tail, head) for tail, head in pairs if tail != head]
    capacities = [draw(st.one_of(st.integers(0, 9), st.integers(0, 2**58))) for _ in pairs]
    return IntegerNetwork(
        num_vertices=num_vertices,
        source=SOURCE,
        sink=SINK,
        tails=np.array([tail for tail, _ in pairs], dtype=np.int64),
        heads=np.array([head for _, head in pairs], dtype=np.int64),
        capacities=np.array(capacities, dtype=np.int64),
    )


def value_by_preflow_push(network):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(network.num_vertices))
    edges = zip(network.tails, network.heads, network.capacities, strict=True)
    graph.add_edges_from((int(u), int(v), {"capacity": int(c)}) for u, v, c in edges)
    return preflow_push(graph, SOURCE, SINK).graph["flow_value"]


@settings(max_examples=examples(150))
@given(network=networks())
def test_the_flow_is_feasible_and_as_large_as_its_cut_and_as_preflow_push_finds(network):
    found = maximum_flow(network)
    assert found.value == value_by_preflow_push(network)
    assert (found.flows >= 0).all()
    assert (found.flows <= network.capacities).all()
    gained = np.zeros(network.num_vertices, dtype=np.int64)
    np.add.at(gained, network.heads, found.flows)
    np.subtract.at(gained, network.tails, found.flows)
    assert gained[SINK] == found.value == -gained[SOURCE]
    assert not gained[2:].any()
    inside = found.from_source > 0
    crosses = inside[network.tails] & ~inside[network.heads]
    assert network.capacities[crosses].sum() == found.value
