"""The quick objective of a placement against the max flow it stands in for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import placed_problems

from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.base import SearchOptions
from planner.placers.board import LargestFlow
from planner.placers.swarm import place_swarm
from tests.examples import examples


@settings(max_examples=examples(200))
@given(placed=placed_problems(max_nodes=6), partial_inference=st.booleans())
def test_it_finds_exactly_the_max_flow_of_any_placement(placed, partial_inference):
    problem, placement = placed
    objective = LargestFlow(problem, SearchOptions(partial_inference=partial_inference))
    flow = max_flow(problem, placement, partial_inference=partial_inference)
    assert objective.tokens_per_s(placement) == flow.value_tokens_per_s


@pytest.mark.parametrize("num_regions", [1, 4])
def test_it_finds_exactly_the_max_flow_on_a_cluster_of_many_nodes(num_regions):
    problem = generated_cluster(num_nodes=80, num_regions=num_regions, seed=3)
    placement = place_swarm(problem)
    flow = max_flow(problem, placement, partial_inference=True).value_tokens_per_s
    objective = LargestFlow(problem, SearchOptions())
    assert flow > 0
    assert objective.tokens_per_s(placement) == flow
