"""Searches that know that links share bandwidth."""

from dataclasses import replace

import numpy as np
import pytest

from planner.domain.cluster import COORDINATOR, SharedBandwidth
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.link_matrix import shared_tokens_per_s
from planner.max_flow import max_flow
from planner.placers.base import NeverCancelled, SearchOptions
from planner.placers.region_chain import RegionChainPlacer
from planner.placers.regions_apart import RegionsApartPlacer

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


def search(placer, problem, **rules):
    return placer.search(
        problem,
        options=SearchOptions(time_limit_s=60.0, rules=PlacementRules(**rules)),
        start=None,
        progress=lambda _: None,
        cancel=NeverCancelled(),
    ).placement


def flow_of(placement):
    return max_flow(SHARING, placement, partial_inference=True).value_tokens_per_s


def test_regions_apart_carry_more_over_a_shared_way_out_than_a_search_that_ignores_it():
    ignoring = search(RegionChainPlacer(), PROBLEM)
    assert flow_of(search(RegionsApartPlacer(), SHARING)) > 2 * flow_of(ignoring)


def test_regions_apart_keep_pins():
    pin = LayerRange(first=3, end=4)
    found = search(RegionsApartPlacer(), SHARING, pinned={"node-5": pin})
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
