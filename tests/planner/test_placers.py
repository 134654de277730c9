import itertools

import pytest
from hypothesis import given, settings
from tiny_problems import all_placements, placement, problems, tiny_problem

from planner.bounds.best import upper_bound_tokens_per_s
from planner.domain.placement import Placement
from planner.flow_graph import check_placement
from planner.max_flow import max_flow
from planner.placers.base import equal_split
from planner.placers.petals import place_petals
from planner.placers.separate_pipelines import (
    place_separate_pipelines,
    place_separate_pipelines_plus,
)
from planner.placers.swarm import place_swarm
from planner.plan_options import BASELINES
from tests.examples import examples


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=examples(60))
@given(problem=problems(max_nodes=4))
def test_a_baseline_places_within_the_rules_and_below_the_bound(name, problem):
    placed = BASELINES[name](problem)
    if placed is None:
        return
    check_placement(problem, placed)
    flow = max_flow(problem, placed, partial_inference=True).value_tokens_per_s
    assert flow <= upper_bound_tokens_per_s(problem) * (1 + 1e-9)


@settings(max_examples=examples(10))
@given(problem=problems(max_nodes=3))
def test_no_baseline_beats_the_best_of_all_placements(problem):
    best = max(
        max_flow(problem, placed, partial_inference=True).value_tokens_per_s
        for placed in all_placements(problem)
    )
    for place in BASELINES.values():
        placed = place(problem)
        if placed is not None:
            flow = max_flow(problem, placed, partial_inference=True).value_tokens_per_s
            assert flow <= best + 1e-6


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "lengths"), [(8, 4, [2] * 4), (8, 3, [3, 3, 2]), (3, 3, [1] * 3)]
)
def test_an_equal_split_covers_every_layer_once(num_layers, num_stages, lengths):
    stages = equal_split(num_layers, num_stages)
    assert [len(stage) for stage in stages] == lengths
    assert stages[0].first == 0
    assert stages[-1].end == num_layers
    assert all(before.end == after.first for before, after in itertools.pairwise(stages))


def test_separate_pipelines_splits_the_model_over_each_kind_that_can_hold_it():
    fast, slow, tiny = [90.0, 50.0], [9.0, 5.0], [1.0]
    problem = tiny_problem([fast, slow, fast, tiny, slow], num_layers=4)
    placed = place_separate_pipelines(problem)
    layers = placement(n0=(0, 2), n2=(2, 4), n1=(0, 2), n4=(2, 4)).layers
    components = (frozenset({"n0", "n2"}), frozenset({"n1", "n4"}))
    assert placed == Placement(layers=layers, components=components)


def test_separate_pipelines_leaves_out_nodes_beyond_one_per_layer():
    problem = tiny_problem([[5.0]] * 3, num_layers=2)
    assert place_separate_pipelines(problem) == placement(n0=(0, 1), n1=(1, 2))


def test_one_more_pipeline_is_made_of_what_separate_ones_leave():
    problem = tiny_problem([[9.0, 9.0], [5.0], [9.0, 9.0], [4.0], [3.0]], num_layers=3)
    placed = place_separate_pipelines_plus(problem)
    assert placed.components == (frozenset({"n0", "n2"}), frozenset({"n1", "n3", "n4"}))
    held = [placed.layers[name] for name in ("n1", "n3", "n4")]
    assert [(one.first, one.end) for one in held] == [(0, 1), (1, 2), (2, 3)]


def test_nothing_is_added_to_separate_pipelines_that_leave_too_little():
    problem = tiny_problem([[9.0, 9.0], [5.0], [9.0, 9.0]], num_layers=3)
    assert place_separate_pipelines_plus(problem) is None


def test_nodes_left_over_hold_in_proportion_to_what_they_can():
    problem = tiny_problem([[5.0], [4.0, 4.0, 4.0], [3.0, 3.0]], num_layers=5)
    placed = place_separate_pipelines_plus(problem)
    assert placed == placement(n0=(0, 1), n1=(1, 4), n2=(4, 5))


def test_separate_pipelines_needs_one_kind_that_can_hold_the_model():
    assert place_separate_pipelines(tiny_problem([[9.0, 9.0], [5.0]], num_layers=3)) is None


def test_swarm_sends_each_node_to_the_stage_with_the_least_throughput():
    problem = tiny_problem(
        [[3.0, 2.0], [30.0, 20.0], [3.0, 2.0], [30.0, 20.0], [3.0, 2.0]], num_layers=4
    )
    placed = place_swarm(problem)
    assert placed == placement(n1=(0, 2), n3=(2, 4), n0=(0, 2), n2=(2, 4), n4=(0, 2))
    assert max_flow(problem, placed, partial_inference=False).value_tokens_per_s == pytest.approx(
        22.0
    )


def test_swarm_leaves_out_nodes_too_weak_for_any_number_of_stages():
    problem = tiny_problem([[9.0], [9.0, 8.0, 7.0], [9.0, 8.0, 7.0]], num_layers=6)
    assert place_swarm(problem) == placement(n1=(0, 3), n2=(3, 6))


def test_swarm_gives_every_stage_a_node_even_where_all_are_stalled():
    problem = tiny_problem([[0.0], [0.0]], num_layers=2)
    assert place_swarm(problem) == placement(n0=(0, 1), n1=(1, 2))


def test_swarm_finds_nothing_where_no_equal_stages_fit():
    problem = tiny_problem([[9.0], [9.0, 8.0, 7.0]], num_layers=4)
    assert place_swarm(problem) is None


def test_petals_joins_where_the_worst_served_layer_gains_most():
    problem = tiny_problem([[9.0, 4.0], [9.0, 8.0, 6.0], [9.0, 9.0]], num_layers=4)
    placed = place_petals(problem)
    assert placed == placement(n0=(0, 2), n1=(1, 4), n2=(0, 2))
    assert max_flow(problem, placed, partial_inference=True).value_tokens_per_s == pytest.approx(
        6.0
    )


def test_nodes_without_memory_for_a_layer_hold_nothing():
    problem = tiny_problem([[], [9.0, 9.0]], num_layers=2)
    for place in (place_petals, place_swarm, place_separate_pipelines):
        assert place(problem) == placement(n1=(0, 2))
