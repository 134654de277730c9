"""Searches that know that links share bandwidth."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from searched import searched
from shared_networks import egress, in_regions, sharing
from tiny_problems import tiny_problem

from planner.bounds.shared import shared_bound_tokens_per_s
from planner.domain.cluster import COORDINATOR, SharedBandwidth
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.link_matrix import shared_tokens_per_s
from planner.max_flow import max_flow
from planner.placers.annealing import Effort, search_by_annealing
from planner.placers.region_chain import search_region_chains
from planner.placers.region_levels import anneal_levels, search_region_levels

PROBLEM = generated_cluster(num_nodes=60, num_regions=2, seed=1)
EVERY_REGION = tuple(
    SharedBandwidth(
        name=f"{direction} of {region}",
        members=(region,),
        direction=direction,
        bandwidth_bytes_per_s=5e6,
        scope="region",
    )
    for region in ("region-0", "region-1")
    for direction in ("egress", "ingress")
)
SHARING = replace(PROBLEM, cluster=replace(PROBLEM.cluster, shared=EVERY_REGION))


def search(method, problem, **rules):
    return searched(method, problem, rules=PlacementRules(**rules)).placement


def flow_of(placement):
    return max_flow(SHARING, placement, partial_inference=True).value_tokens_per_s


def test_regions_in_levels_carry_more_over_a_shared_way_out_than_a_search_that_ignores_it():
    ignoring = search(search_region_chains, PROBLEM)
    assert flow_of(search(search_region_levels, SHARING)) > 2 * flow_of(ignoring)


def test_regions_in_levels_use_every_way_out():
    """No region holds the model: two send what they began to the third, which receives ten each."""
    three = in_regions(
        tiny_problem([[90.0, 60.0]] * 9, num_layers=9), [r for r in "abc" for _ in range(3)]
    )
    problem = sharing(three, *(egress(f"out of {r}", r, tokens_per_s=10.0) for r in "abc"))
    found = search(search_region_levels, problem)
    flow = max_flow(problem, found, partial_inference=True).value_tokens_per_s
    assert flow == pytest.approx(20.0)
    assert flow == pytest.approx(shared_bound_tokens_per_s(problem))


def test_many_regions_with_a_narrow_way_out_are_put_in_levels():
    problem = generated_cluster(num_nodes=50, num_regions=5, seed=1)
    ways_out = [
        SharedBandwidth(
            name=f"out of {region}",
            members=(region,),
            direction="egress",
            bandwidth_bytes_per_s=5e6,
            scope="region",
        )
        for region in sorted({node.region for node in problem.cluster.nodes})
    ]
    problem = sharing(problem, *ways_out)
    each = 5e6 / problem.model.activation_bytes_per_token
    found = search(search_region_levels, problem)
    assert max_flow(problem, found, partial_inference=True).value_tokens_per_s > 1.9 * each


def test_regions_in_levels_find_nothing_in_one_region():
    assert search(search_region_levels, tiny_problem([[9.0]] * 3, num_layers=2)) is None


def test_regions_in_levels_find_nothing_where_only_cards_are_shared():
    card = egress("card", "node-0", tokens_per_s=10.0, scope="nic")
    assert search(search_region_levels, sharing(PROBLEM, card)) is None


def test_regions_in_levels_keep_pins():
    pin = LayerRange(first=3, end=4)
    found = search(search_region_levels, SHARING, pinned={"node-5": pin})
    assert found.layers["node-5"] == pin
    assert flow_of(found) > 0


def test_what_links_share_is_the_least_on_the_way():
    ends = ["node-0", "node-1", "node-2", COORDINATOR]
    expected = np.full((4, 4), np.inf)
    for source, target in ((0, 1), (1, 0), (1, 2), (2, 1)):
        expected[source, target] = 5e6 / PROBLEM.model.activation_bytes_per_token
    for source, target in ((1, 3), (3, 1)):
        expected[source, target] = 5e6 / PROBLEM.model.token_bytes
    assert shared_tokens_per_s(SHARING, ends) == pytest.approx(expected)


def test_levels_that_cannot_hold_the_model_are_left_by_moves_that_change_nothing_yet():
    """The model fits only with all regions in three levels; whatever is not that misses a layer."""

    def value(levels):
        return 1.0 if max(levels) + 1 == 3 else -1.0

    seen = set()

    def remembered(levels):
        seen.add(levels)
        return value(levels)

    anneal_levels(6, remembered, seed=0, is_over=lambda: False)
    assert any(value(levels) > 0 for levels in seen)


class Recorded:
    """Annealers' tries; finds nothing."""

    def __init__(self):
        self.tries = set()

    def moves_per_s(self, tables):
        return 1e6

    def attempt(self, tables, aim, *, chunk_moves, stop):
        self.tries.add((tables.links_sharing, aim.beside_pins, aim.number % 2))


def test_every_view_of_shared_bandwidth_is_tried_for_all_layers_and_beside_pins():
    annealer = Recorded()

    def recorded(board, seed):
        return search_by_annealing(
            board, annealer, seed=seed, by="recorded", effort=Effort(moves_per_node=4000)
        )

    assert search(recorded, SHARING) is None
    views = {sharing for sharing, _, _ in annealer.tries}
    assert len(views) > 1
    assert annealer.tries == set(itertools.product(views, (False, True), (0, 1)))
