"""Where evening would take too long: still a maximum flow, near the products where these fit."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared_networks import shared_problems
from tiny_problems import placed_problems, placement, tiny_problem

from planner import even_program
from planner.balanced_flow import balanced_flow
from planner.flow_check import check_flow
from planner.max_flow import max_flow
from tests.examples import examples

# The fixture sets the same constant for every example.
PATCHED = settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def no_time(monkeypatch):
    monkeypatch.setattr(even_program, "_MOST_WORK", 0.0)


@given(
    placed=placed_problems(max_nodes=6), partial=st.booleans(), hops=st.sampled_from([None, 2, 3])
)
@PATCHED
def test_without_time_to_even_it_is_a_maximum_flow_all_the_same(no_time, placed, partial, hops):
    problem, layers = placed
    flow = balanced_flow(problem, layers, partial_inference=partial, max_hops=hops)
    maximum = max_flow(problem, layers, partial_inference=partial, max_hops=hops)
    assert flow.value_tokens_per_s == maximum.value_tokens_per_s
    check_flow(flow, problem=problem)


@given(placed=shared_problems(max_nodes=5), partial=st.booleans())
@PATCHED
def test_without_time_to_even_it_keeps_to_shared_bandwidth(no_time, placed, partial):
    problem, layers = placed
    check_flow(balanced_flow(problem, layers, partial_inference=partial), problem=problem)


def test_it_pairs_no_nodes_into_private_chains(no_time):
    problem = tiny_problem([[60.0], [40.0], [60.0], [40.0]], num_layers=2)
    layers = placement(n0=(0, 1), n1=(0, 1), n2=(1, 2), n3=(1, 2))
    flow = balanced_flow(problem, layers, partial_inference=False)
    carried = {(edge.source, edge.target): edge.flow_tokens_per_s for edge in flow.edges}
    assert carried["n0", "n2"] == pytest.approx(36.0)
    assert carried["n0", "n3"] == carried["n1", "n2"] == pytest.approx(24.0)
    assert carried["n1", "n3"] == pytest.approx(16.0)
