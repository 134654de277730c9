from dataclasses import replace

import pytest
from tiny_problems import placement, tiny_problem

from planner.domain.flow import MinCut
from planner.flow_check import FlowCheckFailed, check_flow
from planner.max_flow import max_flow


@pytest.fixture
def flow():
    problem = tiny_problem([[9.0, 8.0], [6.0, 5.0], [4.0, 3.0]], num_layers=4)
    layers = placement(n0=(0, 2), n1=(2, 4), n2=(2, 4))
    return max_flow(problem, layers, partial_inference=False)


def test_a_maximum_flow_passes(flow):
    check_flow(flow)


def test_a_flow_above_a_capacity_is_found(flow):
    edges = tuple(
        replace(edge, capacity_tokens_per_s=1.0) if edge.target == "n2" else edge
        for edge in flow.edges
    )
    with pytest.raises(FlowCheckFailed, match=r"n0 -> n2 carries 3\.0.*0 to 1\.0"):
        check_flow(replace(flow, edges=edges))


def test_flow_that_vanishes_in_a_node_is_found(flow):
    edges = tuple(
        replace(edge, flow_tokens_per_s=0.0) if edge.source == "n2" else edge for edge in flow.edges
    )
    with pytest.raises(FlowCheckFailed, match="flow out of node n2 is 0"):
        check_flow(replace(flow, edges=edges))


def test_a_value_that_does_not_leave_the_source_is_found(flow):
    with pytest.raises(FlowCheckFailed, match="flow out of the source"):
        check_flow(replace(flow, value_tokens_per_s=9.0))


def test_a_flow_below_its_cut_is_not_maximal(flow):
    """Half of a feasible flow is feasible, so only the cut can tell."""
    halved = replace(
        flow,
        value_tokens_per_s=flow.value_tokens_per_s / 2,
        edges=tuple(replace(e, flow_tokens_per_s=e.flow_tokens_per_s / 2) for e in flow.edges),
        nodes={
            name: replace(node, flow_tokens_per_s=node.flow_tokens_per_s / 2)
            for name, node in flow.nodes.items()
        },
    )
    with pytest.raises(FlowCheckFailed, match="capacity of the minimum cut"):
        check_flow(halved)


def test_a_cut_that_does_not_separate_source_from_sink_is_found(flow):
    """n0 alone weighs as much as the flow; so would n1 and n2, but not n1 with its own link."""
    problem = tiny_problem([[9.0, 8.0], [9.0, 8.0]], num_layers=2)
    both = max_flow(problem, placement(n0=(0, 2), n1=(0, 2)), partial_inference=False)
    check_flow(both)
    half = MinCut(nodes=("n0",), edges=(), capacity_tokens_per_s=8.0)
    only_n0 = replace(
        both,
        value_tokens_per_s=8.0,
        edges=tuple(
            replace(edge, flow_tokens_per_s=0.0) if "n1" in (edge.source, edge.target) else edge
            for edge in both.edges
        ),
        nodes={**both.nodes, "n1": replace(both.nodes["n1"], flow_tokens_per_s=0.0)},
        min_cut=half,
    )
    with pytest.raises(FlowCheckFailed, match="leaves a path from source to sink"):
        check_flow(only_n0)
