import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import all_placements, placement, problems, tiny_problem

from planner.bounds.best import upper_bound_tokens_per_s
from planner.bounds.knapsack import compute_bound_tokens_per_s, knapsack_bound_tokens_per_s
from planner.max_flow import max_flow
from tests.examples import examples


@settings(max_examples=examples(12))
@given(problem=problems(max_nodes=3), partial_inference=st.booleans())
def test_no_placement_of_a_tiny_cluster_beats_a_bound(problem, partial_inference):
    best = max(
        max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s
        for placed in all_placements(problem)
    )
    assert best <= knapsack_bound_tokens_per_s(problem) * (1 + 1e-9)
    assert best <= upper_bound_tokens_per_s(problem) * (1 + 1e-9)


@settings(max_examples=examples(50))
@given(problem=problems(max_nodes=4))
def test_the_knapsack_bound_is_never_above_the_papers(problem):
    knapsack = knapsack_bound_tokens_per_s(problem)
    assert knapsack <= compute_bound_tokens_per_s(problem) * (1 + 1e-9)


def test_a_single_node_reaches_the_bound():
    problem = tiny_problem([[90.0, 40.0]], num_layers=2)
    assert compute_bound_tokens_per_s(problem) == pytest.approx(45.0)
    assert knapsack_bound_tokens_per_s(problem) == pytest.approx(40.0)


def test_the_bound_is_exact_where_the_layers_just_fit():
    """n1 must hold a layer alone, so its 7 tokens/s are the most; both sides are equal below."""
    problem = tiny_problem([[100.0, 10.0], [7.0]], num_layers=3)
    assert knapsack_bound_tokens_per_s(problem) == pytest.approx(7.0, rel=1e-6)
    best = max_flow(problem, placement(n0=(0, 2), n1=(2, 3)), partial_inference=True)
    assert best.value_tokens_per_s == pytest.approx(7.0)


@pytest.mark.parametrize("speeds", [[[9.0], [9.0]], [[9.0, 0.0], [9.0, 0.0]], [[0.0, 0.0, 0.0]]])
def test_a_cluster_that_cannot_run_every_layer_is_bounded_by_nothing(speeds):
    assert upper_bound_tokens_per_s(tiny_problem(speeds, num_layers=3)) == 0.0
