"""Nodes that nothing tells apart, merged into one: what is merged, and what that keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_networks import egress, shared_problems, sharing
from tiny_problems import placement, tiny_problem

from planner.flow_graph import build_flow_graph, gates_of
from planner.twins import Merged, merge_twins
from tests.examples import examples

STAGES = placement(n0=(0, 1), n1=(0, 1), n2=(1, 2), n3=(1, 2))


def merged(problem, layers=STAGES) -> Merged:
    graph = build_flow_graph(problem, layers, partial_inference=True)
    return merge_twins(graph, gates_of(problem, graph))


def test_alike_nodes_become_one_with_their_capacities_added():
    found = merged(tiny_problem([[4.0], [4.0], [3.0], [3.0]], num_layers=2))
    assert found.graph.names == ("n0", "n2")
    assert found.graph.capacities_tokens_per_s[:2].tolist() == [8.0, 6.0]
    assert set(found.sizes_E.tolist()) == {2, 4}  # two ends, or all four connections between


@pytest.mark.parametrize("pair", [("n0", "n2"), ("coordinator", "n0"), ("n3", "coordinator")])
def test_a_link_of_its_own_tells_a_node_from_its_twin(pair):
    problem = tiny_problem([[4.0]] * 4, num_layers=2, link_tokens_per_s={pair: 1.0})
    told_apart = {"n0", "n1"} if "n0" in pair else {"n2", "n3"}
    assert told_apart <= set(merged(problem).graph.names)


def test_a_shared_bandwidth_of_its_own_tells_a_node_from_its_twin():
    problem = sharing(
        tiny_problem([[4.0]] * 4, num_layers=2), egress("uplink", "n0", tokens_per_s=1.0)
    )
    assert {"n0", "n1"} <= set(merged(problem).graph.names)


@given(placed=shared_problems(max_nodes=5), partial=st.booleans())
@settings(max_examples=examples(60))
def test_any_flow_of_the_merged_graph_split_equally_is_one_of_the_original(placed, partial):
    """Each merged edge stands for its originals: ends, capacities and bytes agree."""
    problem, layers = placed
    graph = build_flow_graph(problem, layers, partial_inference=partial)
    gates = gates_of(problem, graph)
    found = merge_twins(graph, gates)
    capacity_E = found.graph.capacities_tokens_per_s[found.edge_of_E] / found.sizes_E
    np.testing.assert_allclose(capacity_E, graph.capacities_tokens_per_s)
    for gate, whole in zip(gates, found.gates, strict=True):
        np.testing.assert_array_equal(
            whole.bytes_per_token_E[found.edge_of_E], gate.bytes_per_token_E
        )
    flow_M = np.arange(1.0, len(found.graph.tails) + 1)
    flow_E = flow_M[found.edge_of_E] / found.sizes_E
    assert flow_E.sum() == pytest.approx(flow_M.sum())
