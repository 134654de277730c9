"""Nodes that hold fewer layers where they hold the embedding or the output head as well."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import searched
from tiny_problems import all_placements, coverage, placement, problems, proven_bounds, tiny_problem

from planner.capacity import ModelDoesNotFit, check_cluster_can_hold_model, fits
from planner.domain.errors import InvalidPlacement, InvalidProblem
from planner.domain.node_memory import EndRoom, KvMinimum, NodeMemory
from planner.domain.placement import LayerRange
from planner.domain.rules import InvalidRules, PlacementRules
from planner.feasibility import check_rules, conform, restricted_problem
from planner.flow_graph import check_placement
from planner.max_flow import max_flow
from planner.placers.annealing import Effort
from planner.placers.base import NeverCancelled
from planner.placers.interval_annealing import search_interval_annealing
from planner.placers.milp import search_milp
from planner.placers.region_chain import search_region_chains
from planner.placers.stage_annealing import search_stage_annealing
from planner.placers.stage_patterns import search_stage_patterns
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import NoPlacementFound, compute_plan
from planner.replanning.compute_replan import replan
from planner.replanning.options import ReplanOptions
from planner.serialization import problem_from_dict, problem_to_dict
from planner.simulator.translation import kv_pages
from tests.examples import examples


def memory(first, last, both, *, kv_less=0.0):
    return NodeMemory(
        first=EndRoom(max_layers=first, kv_token_layers_less=kv_less),
        last=EndRoom(max_layers=last, kv_token_layers_less=kv_less),
        both=EndRoom(max_layers=both, kv_token_layers_less=kv_less),
    )


def with_memory(problem, memories):
    """The problem with the ends of its compute profiles, in order."""
    profiles = {
        name: replace(profile, memory=one)
        for (name, profile), one in zip(problem.compute_profiles.items(), memories, strict=True)
    }
    return replace(problem, compute_profiles=profiles)


@st.composite
def problems_with_ends(draw, *, max_nodes=3, binding_links=True):
    problem = draw(problems(max_nodes=max_nodes, binding_links=binding_links))
    memories = []
    for profile in problem.compute_profiles.values():
        both = draw(st.integers(0, profile.max_layers))
        ends = st.integers(both, profile.max_layers)
        memories.append(draw(st.none() | st.builds(memory, ends, ends, st.just(both))))
    return with_memory(problem, memories)


def placements(problem):
    """All that fit."""
    return (
        placed
        for placed in all_placements(problem)
        if all(fits(problem, name, held) for name, held in placed.layers.items())
    )


def best_flow(problem, *, partial_inference, such_that=lambda _: True):
    return max(
        (
            max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s
            for placed in placements(problem)
            if covers(placed, problem.model.num_layers) and such_that(placed)
        ),
        default=0.0,
    )


def covers(placed, num_layers):
    held = (range(one.first, one.end) for one in placed.layers.values())
    return set().union(*held) == set(range(num_layers))


def is_chain(placed, num_layers):
    stages = sorted({(held.first, held.end) for held in placed.layers.values()})
    ends = [0, *(end for _, end in stages)]
    return [first for first, _ in stages] == ends[:-1] and ends[-1] == num_layers


def search(method, problem, *, partial_inference):
    return searched(method, problem, partial_inference=partial_inference)


def found_flow(problem, placed, *, partial_inference):
    """Also checks that it fits, which a flow graph refuses otherwise."""
    if placed is None:
        return 0.0
    return max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s


def test_a_placement_that_leaves_no_room_for_the_embedding_is_refused():
    problem = with_memory(tiny_problem([[9.0, 8.0, 7.0]] * 2, num_layers=4), [memory(2, 3, 0)])
    check_placement(problem, placement(n0=(0, 2), n1=(1, 4)))
    with pytest.raises(InvalidPlacement, match=r"n0.*3 layers .* memory for 2"):
        check_placement(problem, placement(n0=(0, 3), n1=(1, 4)))


@settings(max_examples=examples(20))
@given(problem=problems_with_ends(), partial_inference=st.booleans())
def test_the_integer_program_finds_the_best_of_all_placements_that_fit(problem, partial_inference):
    best = best_flow(problem, partial_inference=partial_inference)
    if best == 0:
        return
    result = search(search_milp, problem, partial_inference=partial_inference)
    flow = found_flow(problem, result.placement, partial_inference=partial_inference)
    assert flow == pytest.approx(best, rel=1e-3, abs=1e-3)
    assert result.upper_bound_tokens_per_s >= best * (1 - 1e-6)


# A heuristic misses the best of one problem in some hundreds: these meet the same in each run.
@settings(max_examples=examples(20), derandomize=True)
@given(problem=problems_with_ends(binding_links=False))
def test_annealed_ranges_are_the_best_that_fit_where_links_are_ample(problem):
    best = max(
        (coverage(problem, placed) for placed in placements(problem) if placed.layers), default=0.0
    )
    method = partial(search_interval_annealing, effort=Effort(moves_per_node=1000))
    placed = search(method, problem, partial_inference=True).placement
    assert found_flow(problem, placed, partial_inference=True) == pytest.approx(best, rel=0.01)


@settings(max_examples=examples(20), derandomize=True)
@given(problem=problems_with_ends(binding_links=False))
def test_annealed_stages_are_the_best_chain_that_fits_where_links_are_ample(problem):
    best = best_flow(
        problem,
        partial_inference=False,
        such_that=lambda placed: is_chain(placed, problem.model.num_layers),
    )
    method = partial(search_stage_annealing, effort=Effort(moves_per_node=1000))
    placed = search(method, problem, partial_inference=False).placement
    assert found_flow(problem, placed, partial_inference=False) == pytest.approx(best, rel=0.01)


def test_a_stage_in_the_middle_stays_there_when_a_layer_comes_off():
    """n0 holds two layers, but none of the first and the last."""
    problem = with_memory(
        tiny_problem([[1.0, 1.0], [1.0], [1.0]], num_layers=3), [memory(0, 0, 0), None]
    )
    method = partial(search_stage_annealing, effort=Effort(moves_per_node=1000))
    placed = search(method, problem, partial_inference=False).placement
    assert found_flow(problem, placed, partial_inference=False) == 1.0


@settings(max_examples=examples(20))
@given(problem=problems_with_ends(), rules=st.sampled_from([None, 2]))
def test_what_patterns_and_baselines_place_fits(problem, rules):
    for method in (search_stage_patterns, search_region_chains):
        placed = search(method, problem, partial_inference=False).placement
        found_flow(problem, placed, partial_inference=False)
    for place in BASELINES.values():
        placed = place(problem)
        if placed is not None:
            found_flow(problem, conform(problem, placed, PlacementRules(max_hops=rules)),
                       partial_inference=True)  # fmt: skip


@settings(max_examples=examples(20))
@given(problem=problems_with_ends(max_nodes=3), partial_inference=st.booleans())
def test_no_placement_that_fits_is_above_a_bound(problem, partial_inference):
    best = best_flow(problem, partial_inference=partial_inference)
    for bound in proven_bounds(problem):
        assert bound >= best * (1 - 1e-6)


@settings(max_examples=examples(20))
@given(problem=problems_with_ends(), objective=st.sampled_from(["flow", "decode"]))
def test_a_plan_is_found_exactly_where_one_fits(problem, objective):
    best = best_flow(problem, partial_inference=True)
    options = PlanOptions(time_limit_s=1.0, objective=objective)
    try:
        plan = compute_plan(
            problem, options=options, progress=lambda _: None, cancel=NeverCancelled()
        )
    except (ModelDoesNotFit, NoPlacementFound):
        assert best == 0
        return
    check_placement(problem, plan.placement)
    if objective == "flow":
        assert plan.flow.value_tokens_per_s == pytest.approx(best, rel=0.02)


@settings(max_examples=examples(60))
@given(problem=problems_with_ends(max_nodes=3))
def test_it_is_said_that_the_model_does_not_fit_exactly_where_no_placement_covers_it(problem):
    """Without links there is nothing but memory in the way."""
    holds = any(covers(placed, problem.model.num_layers) for placed in placements(problem))
    if holds:
        check_cluster_can_hold_model(problem)
    else:
        with pytest.raises(ModelDoesNotFit):
            check_cluster_can_hold_model(problem)


@settings(max_examples=examples(20))
@given(problem=problems_with_ends(), seed=st.integers(0, 3))
def test_replanning_gives_no_node_more_than_it_holds(problem, seed):
    running = next(
        (placed for placed in placements(problem) if len(placed.layers) > 1), placement()
    )
    if not running.layers:
        return
    options = ReplanOptions(plan=PlanOptions(time_limit_s=0.3, seed=seed), time_limit_s=0.6)
    try:
        answers = replan(
            problem, running, options=options, progress=lambda _: None, cancel=NeverCancelled()
        )
    except ModelDoesNotFit:
        return
    for point in answers.pareto:
        check_placement(problem, point.placement)


def test_rules_leave_the_ends_their_limits():
    problem = with_memory(tiny_problem([[9.0, 8.0, 7.0]] * 3, num_layers=4), [memory(2, 1, 0)])
    restricted = restricted_problem(problem, PlacementRules(max_layers_of={"n0": 2}))
    for first, end in itertools.combinations(range(5), 2):
        held = LayerRange(first=first, end=end)
        for name in ("n1", "n2"):
            assert fits(restricted, name, held) == fits(problem, name, held)
        assert fits(restricted, "n0", held) == (fits(problem, "n0", held) and len(held) <= 2)


def test_a_pin_at_an_end_needs_room_for_that_end():
    problem = with_memory(tiny_problem([[9.0, 8.0, 7.0]] * 3, num_layers=4), [memory(2, 1, 0)])
    check_rules(problem, PlacementRules(pinned={"n0": LayerRange(first=0, end=2)}))
    with pytest.raises(InvalidRules, match="memory for 2 with the model's first layer"):
        check_rules(problem, PlacementRules(pinned={"n0": LayerRange(first=0, end=3)}))


def test_kv_room_is_less_at_the_ends():
    problem = with_memory(
        tiny_problem([[9.0, 8.0, 7.0]] * 2, num_layers=4), [memory(2, 3, 0, kv_less=320.0)]
    )
    pages = [
        kv_pages(problem, "n0", LayerRange(first=first, end=first + 2), page_tokens=10)
        for first in (0, 1, 2)
    ]
    assert pages == [68, 100, 68]


def test_the_ends_travel_in_files_as_they_are():
    problem = tiny_problem([[9.0, 8.0, 7.0]] * 2, num_layers=4)
    assert "memory" not in str(problem_to_dict(problem))
    ends = replace(
        memory(2, 3, 1, kv_less=12.5),
        kv_minimum=KvMinimum(requests=2, tokens=512),
        reserve_bytes=7.0,
    )
    changed = with_memory(problem, [ends])
    assert problem_from_dict(problem_to_dict(changed)) == changed


def test_both_ends_with_more_layers_than_one_of_them_are_refused():
    with pytest.raises(InvalidProblem, match=r"both.max_layers is 3, above memory.first"):
        memory(2, 3, 3)
