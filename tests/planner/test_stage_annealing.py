"""Annealing on stages, against every aligned placement of tiny clusters and across slow links."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import searched
from tiny_problems import all_placements, problems, tiny_problem

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.annealing import Effort
from planner.placers.flow_tables import flow_tables
from planner.placers.stage_annealing import search_stage_annealing
from planner.placers.stage_chain import placement_of_chain, ranks_of
from tests.examples import examples


def search(problem, *, moves_per_node=500, start=None, seed=0, rules=None):
    return searched(
        partial(search_stage_annealing, effort=Effort(moves_per_node=moves_per_node)),
        problem,
        seed=seed,
        rules=rules or PlacementRules(),
        start=start,
    )


def is_chain(placed, *, num_layers):
    """Whether the ranges are stages that follow each other, each node holding all of its stage."""
    stages = sorted({(held.first, held.end) for held in placed.layers.values()})
    ends = [0, *(end for _, end in stages)]
    return [first for first, _ in stages] == ends[:-1] and ends[-1] == num_layers


@settings(max_examples=examples(25), derandomize=True)  # a heuristic
@given(problem=problems(max_nodes=3, binding_links=False))
def test_it_finds_the_best_chain_of_a_tiny_cluster_with_ample_links(problem):
    best = max(
        (
            max_flow(problem, placed, partial_inference=False).value_tokens_per_s
            for placed in all_placements(problem)
            if placed.layers and is_chain(placed, num_layers=problem.model.num_layers)
        ),
        default=0.0,
    )
    found = search(problem).placement
    flow = (
        0.0
        if found is None
        else max_flow(problem, found, partial_inference=False).value_tokens_per_s
    )
    assert flow == pytest.approx(best, rel=0.01)


@settings(max_examples=examples(25))
@given(problem=problems(max_nodes=4), seed=st.integers(0, 3))
def test_the_same_seed_gives_the_same_placement(problem, seed):
    first = search(problem, moves_per_node=100, seed=seed)
    assert search(problem, moves_per_node=100, seed=seed).placement == first.placement


def test_it_spreads_the_crossing_between_regions_over_several_links():
    """One node sends at most 763 tokens/s to another region, a third of what the chain carries."""
    problem = generated_cluster(num_nodes=24, num_regions=2, seed=1)
    found = search(problem).placement
    flow = max_flow(problem, found, partial_inference=False).value_tokens_per_s
    assert flow > 0.6 * knapsack_bound_tokens_per_s(problem)
    regions = {problem.cluster.node(name).region for name in found.layers}
    assert len(regions) == 2


def test_it_keeps_to_the_hop_limit():
    problem = tiny_problem([[9.0, 8.0, 7.0]] * 4, num_layers=4)
    found = search(problem, rules=PlacementRules(max_hops=2)).placement
    assert len({(held.first, held.end) for held in found.layers.values()}) <= 2


def test_pinned_nodes_stay_where_they_are():
    problem = tiny_problem([[9.0, 8.0], [9.0, 8.0], [9.0, 8.0]], num_layers=4)
    pin = LayerRange(first=1, end=3)
    found = search(problem, rules=PlacementRules(pinned={"n1": pin})).placement
    assert found.layers["n1"] == pin


def test_a_chain_read_from_a_placement_and_written_again_is_the_same():
    problem = tiny_problem([[9.0, 8.0], [9.0, 8.0], [20.0, 18.0]], num_layers=4)
    tables = flow_tables(problem, PlacementRules(), bound_tokens_per_s=18.0)
    ranks = [0, 0, 1]
    placed = placement_of_chain(tables, ranks)
    assert placed.as_lists() == {"n0": [0, 2], "n1": [0, 2], "n2": [2, 4]}
    assert ranks_of(tables, placed) == ranks


def test_nodes_that_cannot_hold_the_model_make_no_chain():
    problem = tiny_problem([[9.0], [9.0]], num_layers=4)
    tables = flow_tables(problem, PlacementRules(), bound_tokens_per_s=9.0)
    assert placement_of_chain(tables, [0, 1]) is None
