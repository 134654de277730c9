"""The MILP under rules and shared bandwidth, against trying everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import searched
from shared_networks import egress, sharing
from tiny_problems import all_placements, problems, tiny_problem

from planner.capacity import ModelDoesNotFit, allowed_layers
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import LayerRange
from planner.domain.rules import InvalidRules, PlacementRules
from planner.feasibility import check_rules, conform, restricted_problem
from planner.max_flow import max_flow
from planner.placers.milp import search_milp
from tests.examples import examples

MIXED = tiny_problem([[90.0, 40.0], [60.0, 28.0], [60.0, 28.0], [30.0, 14.0]], num_layers=4)


def search(problem, rules, *, start=None):
    check_rules(problem, rules)
    return searched(
        search_milp,
        restricted_problem(problem, rules),
        solver="highs",
        relative_gap=1e-6,
        rules=rules.once_restricted,
        start=start,
    )


def flow_of(problem, placed, rules):
    if placed is None:
        return 0.0
    return max_flow(
        problem, placed, partial_inference=True, max_hops=rules.max_hops
    ).value_tokens_per_s


def honours(problem, placed, rules):
    return all(
        len(held) <= allowed_layers(problem, name, rules) for name, held in placed.layers.items()
    ) and all(placed.layers.get(name) == pin for name, pin in rules.pinned.items())


def best_by_trying_everything(problem, rules):
    return max(
        flow_of(problem, placed, rules)
        for placed in all_placements(problem)
        if honours(problem, placed, rules)
    )


@st.composite
def rules_of(draw, problem):
    names = [node.name for node in problem.cluster.nodes]
    pinned = {}
    if draw(st.booleans()):
        name = draw(st.sampled_from(names))
        held = draw(st.integers(1, problem.profile_of(name).max_layers))
        first = draw(st.integers(0, problem.model.num_layers - held))
        pinned[name] = LayerRange(first=first, end=first + held)
    others = [name for name in names if name not in pinned]
    return PlacementRules(
        pinned=pinned,
        excluded_nodes=frozenset(draw(st.sets(st.sampled_from(others), max_size=1))),
        max_layers_of={draw(st.sampled_from(others)): draw(st.integers(0, 2))},
    )


@settings(max_examples=examples(15), derandomize=True)
@given(data=st.data(), problem=problems(max_nodes=3))
def test_under_rules_the_optimum_is_that_of_trying_everything(data, problem):
    rules = data.draw(rules_of(problem))
    try:
        check_rules(problem, rules)
    except (ModelDoesNotFit, InvalidRules):
        return
    best = best_by_trying_everything(problem, rules)
    result = search(problem, rules)
    assert flow_of(problem, result.placement, rules) == pytest.approx(best, rel=1e-5, abs=1e-3)
    assert result.placement is None or honours(problem, result.placement, rules)


@settings(max_examples=examples(10), derandomize=True)
@given(
    problem=problems(max_nodes=3),
    tokens_per_s=st.floats(min_value=0.1, max_value=1000.0),
    scope=st.sampled_from(["region", "nic"]),
)
def test_with_shared_bandwidth_the_optimum_is_that_of_trying_everything(
    problem, tokens_per_s, scope
):
    rules = PlacementRules()
    shared = sharing(problem, egress("out", "n0", "n1", tokens_per_s=tokens_per_s, scope=scope))
    try:
        check_rules(shared, rules)
    except ModelDoesNotFit:
        return
    best = best_by_trying_everything(shared, rules)
    result = search(shared, rules)
    assert flow_of(shared, result.placement, rules) == pytest.approx(best, rel=1e-5, abs=1e-3)
    assert result.upper_bound_tokens_per_s >= best * (1 - 1e-5) - 1e-3


@pytest.mark.parametrize("max_hops", [2, 3, 4])
def test_with_a_hop_limit_the_optimum_is_that_of_trying_everything(max_hops):
    rules = PlacementRules(max_hops=max_hops)
    best = best_by_trying_everything(MIXED, rules)
    result = search(MIXED, rules)
    assert flow_of(MIXED, result.placement, rules) == pytest.approx(best, rel=1e-5)
    assert result.upper_bound_tokens_per_s >= best * (1 - 1e-5)


def test_a_start_that_breaks_the_rules_is_bent_to_them():
    start = search(MIXED, PlacementRules()).placement
    rules = PlacementRules(excluded_nodes=frozenset({"n0"}), max_layers_of={"n1": 1})
    result = search(MIXED, rules, start=conform(MIXED, start, rules))
    assert honours(MIXED, result.placement, rules)


def test_a_coordinator_behind_a_narrow_card_limits_every_placement():
    narrow = egress("front", COORDINATOR, tokens_per_s=0.1, scope="nic")
    result = search(sharing(MIXED, narrow), PlacementRules())
    # 0.1 tokens/s of activations, 100 bytes each, are 5 tokens/s of 2 bytes.
    flow = flow_of(sharing(MIXED, narrow), result.placement, PlacementRules())
    assert flow == pytest.approx(5.0)
