import math

import pytest
from hypothesis import given, settings
from shared_networks import egress, shared_problems, sharing
from tiny_problems import all_placements, tiny_problem

from planner.bounds import proven_bounds, quick_bounds
from planner.bounds.shared import shared_bound_tokens_per_s
from planner.domain.cluster import COORDINATOR, SharedBandwidth
from planner.max_flow import max_flow

TWO = tiny_problem([[50.0, 20.0], [50.0, 20.0]], num_layers=3)


def ingress(name, *members, tokens_per_s):
    return SharedBandwidth(
        name=name,
        members=members,
        direction="ingress",
        bandwidth_bytes_per_s=tokens_per_s * 100.0,
        scope="region",
    )


@settings(max_examples=40, deadline=None)
@given(shared_problems(max_nodes=3))
def test_no_placement_s_flow_exceeds_any_bound_where_bandwidth_is_shared(placed):
    problem, _ = placed
    best = max(
        max_flow(problem, layers, partial_inference=True).value_tokens_per_s
        for layers in all_placements(problem)
    )
    assert best <= shared_bound_tokens_per_s(problem) * (1 + 1e-6) + 1e-6
    for bound in proven_bounds(problem):
        assert best <= bound.tokens_per_s * (1 + 1e-6) + 1e-6, bound.method


def test_both_ways_over_a_border_and_both_sides_alone_are_added():
    """Neither node holds the model alone, so every token crosses."""
    problem = sharing(
        TWO, egress("out", "n0", tokens_per_s=4.0), ingress("in", "n0", tokens_per_s=3.0)
    )
    assert shared_bound_tokens_per_s(problem) == pytest.approx(7.0)
    assert "shared bandwidth" in [bound.method for bound in quick_bounds(problem)]


def test_one_way_alone_proves_nothing():
    problem = sharing(TWO, egress("out", "n0", tokens_per_s=4.0))
    assert shared_bound_tokens_per_s(problem) == math.inf


def test_the_coordinator_s_card_bounds_every_flow():
    problem = sharing(TWO, egress("card", COORDINATOR, "n0", tokens_per_s=1.0, scope="nic"))
    assert shared_bound_tokens_per_s(problem) == pytest.approx(50.0)
