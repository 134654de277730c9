import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_networks import max_flow_over_pipelines
from tiny_problems import placed_problems, placement, tiny_problem

from planner.flow_check import check_flow, flow_value_by_second_method
from planner.flow_graph import build_flow_graph, longest_path_stages
from planner.max_flow import max_flow
from tests.examples import examples

LONG_AND_SHORT = tiny_problem([[9.0, 8.0, 7.0]] + [[5.0]] * 3, num_layers=3)
BOTH_WAYS = placement(n0=(0, 3), n1=(0, 1), n2=(1, 2), n3=(2, 3))


@settings(max_examples=examples(200))
@given(placed_problems(max_nodes=4), st.booleans(), st.integers(1, 4))
def test_no_way_through_the_graph_is_longer_than_the_limit(placed, partial, limit):
    problem, layers = placed
    graph = build_flow_graph(problem, layers, partial_inference=partial, max_hops=limit)
    assert longest_path_stages(graph) <= limit
    flow = max_flow(problem, layers, partial_inference=partial, max_hops=limit)
    check_flow(flow)
    second = flow_value_by_second_method(problem, layers, partial_inference=partial, max_hops=limit)
    assert flow.value_tokens_per_s == pytest.approx(second, rel=1e-6, abs=1e-6)
    short_pipelines = max_flow_over_pipelines(
        problem, layers, partial_inference=partial, max_hops=limit
    )
    assert flow.value_tokens_per_s <= short_pipelines * (1 + 1e-6) + 1e-5
    if limit >= longest_path_stages(build_flow_graph(problem, layers, partial_inference=partial)):
        assert flow == max_flow(problem, layers, partial_inference=partial)


def test_a_limit_below_the_longest_pipeline_leaves_the_shorter_ones():
    unlimited = max_flow(LONG_AND_SHORT, BOTH_WAYS, partial_inference=True)
    assert unlimited.value_tokens_per_s == pytest.approx(12.0)
    limited = max_flow(LONG_AND_SHORT, BOTH_WAYS, partial_inference=True, max_hops=2)
    assert limited.value_tokens_per_s == pytest.approx(7.0)


def test_aligned_stages_lose_nothing_when_the_limit_is_their_number():
    problem = tiny_problem([[9.0, 8.0]] * 4, num_layers=4)
    stages = placement(n0=(0, 2), n1=(0, 2), n2=(2, 4), n3=(2, 4))
    assert max_flow(problem, stages, partial_inference=True, max_hops=2) == max_flow(
        problem, stages, partial_inference=True
    )
    none = max_flow(problem, stages, partial_inference=True, max_hops=1)
    assert none.value_tokens_per_s == 0.0
