"""Annealing on ranges, against every placement of tiny clusters."""

from functools import partial

import pytest
from hypothesis import given, settings
from searched import searched
from tiny_problems import all_placements, problems, tiny_problem

from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.annealing import Effort
from planner.placers.interval_annealing import search_interval_annealing
from planner.placers.petals import place_petals
from tests.examples import examples


class Cancelled:
    def is_cancelled(self):
        return True


def search(problem, *, start=None, rules=None, cancel=None):
    return searched(
        partial(search_interval_annealing, effort=Effort(moves_per_node=1000)),
        problem,
        rules=rules or PlacementRules(),
        start=start,
        cancel=cancel,
    )


@settings(max_examples=examples(25), derandomize=True)  # a heuristic
@given(problem=problems(max_nodes=3, binding_links=False))
def test_it_finds_the_best_placement_of_a_tiny_cluster_with_ample_links(problem):
    best = max(
        max_flow(problem, placed, partial_inference=True).value_tokens_per_s
        for placed in all_placements(problem)
    )
    found = search(problem).placement
    flow = (
        0.0
        if found is None
        else max_flow(problem, found, partial_inference=True).value_tokens_per_s
    )
    assert flow == pytest.approx(best, rel=0.02)


@settings(max_examples=examples(25), derandomize=True)  # a heuristic
@given(problem=problems(max_nodes=3, binding_links=False))
def test_it_finds_the_best_placement_around_a_pinned_node(problem):
    pin = LayerRange(first=1, end=2)
    best = max(
        max_flow(problem, placed, partial_inference=True).value_tokens_per_s
        for placed in all_placements(problem)
        if placed.layers.get("n0") == pin
    )
    found = search(problem, rules=PlacementRules(pinned={"n0": pin})).placement
    assert found is None or found.layers["n0"] == pin
    flow = (
        0.0
        if found is None
        else max_flow(problem, found, partial_inference=True).value_tokens_per_s
    )
    assert flow == pytest.approx(best, rel=0.02)


def test_a_pin_holds_what_the_other_nodes_cannot():
    problem = tiny_problem([[9.0, 8.0], [7.0], [7.0]], num_layers=4)
    pin = LayerRange(first=1, end=3)
    found = search(problem, rules=PlacementRules(pinned={"n0": pin})).placement
    assert found.layers["n0"] == pin
    assert max_flow(problem, found, partial_inference=True).value_tokens_per_s == pytest.approx(7.0)


@settings(max_examples=examples(25))
@given(problem=problems(max_nodes=4))
def test_slow_links_never_make_it_worse_than_its_start(problem):
    start = place_petals(problem)
    found = search(problem, start=start).placement
    assert (
        max_flow(problem, found, partial_inference=True).value_tokens_per_s
        >= max_flow(problem, start, partial_inference=True).value_tokens_per_s
    )


@settings(max_examples=examples(10))
@given(problem=problems(max_nodes=3))
def test_a_cancelled_search_returns_its_start(problem):
    start = place_petals(problem)
    result = search(problem, start=start, cancel=Cancelled())
    assert result.placement == start
    assert result.stop_reason == "cancelled"


@settings(max_examples=examples(10))
@given(problem=problems(max_nodes=3))
def test_a_node_without_permission_holds_nothing(problem):
    rules = PlacementRules(
        excluded_nodes=frozenset({"n0"}), pinned={"n1": LayerRange(first=0, end=1)}
    )
    found = search(problem, rules=rules).placement
    assert found is None or "n0" not in found.layers
    assert found is None or found.layers["n1"] == LayerRange(first=0, end=1)
