import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_networks import egress, in_regions, regional_problems, shared_problems, sharing
from tiny_problems import AMPLE_TOKENS_PER_S, all_placements, proven_bounds, tiny_problem

from planner.bounds.best import quick_bounds_tokens_per_s
from planner.bounds.shared import shared_bound_tokens_per_s
from planner.domain.cluster import COORDINATOR, SharedBandwidth
from planner.max_flow import max_flow
from tests.examples import examples

TWO = tiny_problem([[50.0, 20.0], [50.0, 20.0]], num_layers=3)


def ingress(name, *members, tokens_per_s):
    return SharedBandwidth(
        name=name,
        members=members,
        direction="ingress",
        bandwidth_bytes_per_s=tokens_per_s * 100.0,
        scope="region",
    )


@settings(max_examples=examples(40))
@given(shared_problems(max_nodes=3))
def test_no_placement_s_flow_exceeds_any_bound_where_bandwidth_is_shared(placed):
    problem, _ = placed
    best = max(
        max_flow(problem, layers, partial_inference=True).value_tokens_per_s
        for layers in all_placements(problem)
    )
    assert best <= shared_bound_tokens_per_s(problem) * (1 + 1e-6) + 1e-6
    for bound in proven_bounds(problem):
        assert best <= bound * (1 + 1e-6) + 1e-6


@settings(max_examples=examples(25))
@given(regional_problems(), st.booleans())
def test_no_placement_s_flow_exceeds_any_bound_where_regions_and_cards_share(
    problem, partial_inference
):
    best = max(
        max_flow(problem, layers, partial_inference=partial_inference).value_tokens_per_s
        for layers in all_placements(problem)
    )
    assert best <= shared_bound_tokens_per_s(problem) * (1 + 1e-6) + 1e-6
    for bound in proven_bounds(problem):
        assert best <= bound * (1 + 1e-6) + 1e-6


def test_where_no_region_holds_the_model_one_way_out_less_is_of_use():
    """Each token leaves a region, and the region that first lacks a layer passes it nothing."""
    three = in_regions(tiny_problem([[90.0, 50.0]] * 3, num_layers=3), ["a", "b", "c"])
    ways_out = {"a": 4.0, "b": 5.0, "c": 6.0}
    problem = sharing(
        three, *(egress(f"out of {r}", r, tokens_per_s=ways_out[r]) for r in ways_out)
    )
    assert shared_bound_tokens_per_s(problem) == pytest.approx(11.0)
    best = max(
        max_flow(problem, layers, partial_inference=True).value_tokens_per_s
        for layers in all_placements(problem)
    )
    assert best == pytest.approx(11.0)


def test_a_region_that_holds_the_model_adds_what_it_carries_alone():
    two = in_regions(tiny_problem([[20.0, 10.0], [20.0]], num_layers=2), ["a", "b"])
    problem = sharing(two, egress("a", "a", tokens_per_s=3.0), egress("b", "b", tokens_per_s=4.0))
    assert shared_bound_tokens_per_s(problem) == pytest.approx(10.0 + 3.0 + 4.0)


def test_both_ways_over_a_border_and_both_sides_alone_are_added():
    """Neither node holds the model alone, so every token crosses."""
    problem = sharing(
        TWO, egress("out", "n0", tokens_per_s=4.0), ingress("in", "n0", tokens_per_s=3.0)
    )
    assert shared_bound_tokens_per_s(problem) == pytest.approx(7.0)
    assert shared_bound_tokens_per_s(problem) in quick_bounds_tokens_per_s(problem)


def test_one_way_alone_proves_no_more_than_the_links_do():
    problem = sharing(TWO, egress("out", "n0", tokens_per_s=4.0))
    assert shared_bound_tokens_per_s(problem) == pytest.approx(AMPLE_TOKENS_PER_S)


def test_nothing_is_proven_where_nothing_is_shared():
    assert shared_bound_tokens_per_s(TWO) == math.inf


def test_the_coordinator_s_card_bounds_every_flow():
    problem = sharing(TWO, egress("card", COORDINATOR, "n0", tokens_per_s=1.0, scope="nic"))
    assert shared_bound_tokens_per_s(problem) == pytest.approx(50.0)
