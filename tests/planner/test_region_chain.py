"""Placements over slow links: what the programs promise, exact max flows must keep."""

import itertools
import math
import random

import pytest
from searched import searched
from tiny_problems import proven_bounds, tiny_problem

from planner.bounds.link_groups import LinkTable, link_groups
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.patterns import PatternFamily
from planner.placers.region_chain import search_region_chains
from planner.placers.stage_patterns import search_stage_patterns

A, B = ("n0", "n1", "n2"), ("n3", "n4", "n5")


def search(method, problem, **rules):
    return searched(method, problem, rules=PlacementRules(**rules))


def flow_of(problem, placed):
    return max_flow(problem, placed, partial_inference=False).value_tokens_per_s


def two_groups(slow_tokens_per_s):
    """Three nodes each on two sites, six layers; a link between the sites is slow."""
    slow = {
        pair: slow_tokens_per_s
        for one, other in itertools.product(A, B)
        for pair in ((one, other), (other, one))
    }
    return tiny_problem([[20.0, 10.0]] * 6, num_layers=6, link_tokens_per_s=slow)


@pytest.mark.parametrize("seed", range(200))
def test_stages_that_count_their_nodes_by_width_pass_the_whole_flow_on(seed):
    """The statement behind `PatternFamily`, by the min cut over all subsets of two stages."""
    rng = random.Random(seed)
    link, flow = rng.uniform(0.5, 3.0), rng.uniform(3.0, 12.0)
    exponent = rng.choice([0.25, 0.5, 0.75, 1.0])
    stages = []
    for share in (exponent, 1 - exponent):
        family = PatternFamily(kinds=(), link_tokens_per_s=link, width_exponent=share)
        most = family.countable_tokens_per_s(flow)
        speeds = []
        while sum(min(speed, most) for speed in speeds) < flow and len(speeds) < 7:
            speeds.append(rng.uniform(0.5, 12.0))
        stages.append((speeds, sum(min(speed, most) for speed in speeds)))
    (left, left_counted), (right, right_counted) = stages
    lightest = math.inf
    for behind_left in itertools.product((False, True), repeat=len(left)):
        reached = sum(behind_left)
        cut = sum(s for s, behind in zip(left, behind_left, strict=True) if not behind)
        lightest = min(lightest, cut + sum(min(speed, reached * link) for speed in right))
    if min(left_counted, right_counted) >= flow:
        assert lightest >= flow * (1 - 1e-9)


def test_sites_are_told_apart_by_their_links_where_regions_do_not():
    problem = two_groups(2.0)
    groups = link_groups(problem, LinkTable(problem))
    assert {groups[name] for name in A} != {groups[name] for name in B}
    assert len({groups[name] for name in A}) == len({groups[name] for name in B}) == 1


def test_links_that_are_all_alike_make_one_group():
    problem = tiny_problem([[20.0, 10.0]] * 4, num_layers=4)
    assert len(set(link_groups(problem, LinkTable(problem)).values())) == 1


def test_a_chain_pays_for_its_crossing_and_no_more():
    """Links of 4: a flow of 10 crosses by three of them, from one node to three or the reverse.

    Three nodes of a site hold one layer together at most, so six layers do not fit; the best
    flow is found by a wide stage on each side or by fewer nodes, never by a chain of single nodes.
    """
    problem = two_groups(4.0)
    chain = search(search_region_chains, problem)
    blind = search(search_stage_patterns, problem)
    found, ignoring_links = flow_of(problem, chain.placement), flow_of(problem, blind.placement)
    assert found >= ignoring_links
    assert found <= min(proven_bounds(problem)) * (1 + 1e-9)


def test_three_regions_lose_little_against_one():
    """The chain's few wide stages are all that slow links cost: a study reached 0.80."""
    problem = generated_cluster(num_nodes=100, num_regions=3, seed=0)
    bound = next(proven_bounds(problem))
    found = search(search_region_chains, problem)
    assert flow_of(problem, found.placement) >= 0.8 * bound


def test_many_small_regions_are_served_by_wide_stages():
    problem = generated_cluster(num_nodes=60, num_regions=12, seed=1)
    wide = search(search_region_chains, problem)
    blind = search(search_stage_patterns, problem)
    assert flow_of(problem, wide.placement) > flow_of(problem, blind.placement)


def test_a_hop_limit_holds_for_chains_too():
    problem = generated_cluster(num_nodes=40, num_regions=2, seed=2)
    placed = search(search_region_chains, problem, max_hops=12).placement
    assert len(set(placed.layers.values())) <= 12


def test_nothing_is_searched_where_all_links_are_alike():
    problem = tiny_problem([[20.0, 10.0]] * 4, num_layers=4)
    assert search(search_region_chains, problem).placement is None
