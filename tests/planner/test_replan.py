import itertools
from collections import Counter
from dataclasses import replace

import pytest
from tiny_problems import all_placements, placement, tiny_problem

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.node_kinds import NO_RULES
from planner.domain.cluster import Link
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.objectives.trial import Trials
from planner.placers.base import InvalidOptions, NeverCancelled
from planner.placers.budgeted_moves import moved_layers
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.replanning.around import Way, way_of
from planner.replanning.compute_replan import replan, unmoved_score, zero_moves
from planner.replanning.options import ReplanOptions

BYTES_PER_LAYER = 1e6
CLUSTER = tiny_problem([[90.0, 50.0, 30.0], [40.0, 20.0], [40.0, 20.0], [40.0, 20.0]], num_layers=4)
RUNNING = placement(n0=(0, 2), n1=(2, 4), n2=(2, 4), n3=(2, 3))
FOR_FLOW = PlanOptions(objective="flow")


class Cancelled:
    def is_cancelled(self):
        return True


def lost(problem, name):
    return replace(problem, cluster=problem.cluster.without({name}))


def answer(problem, running=RUNNING, *, heard=None, cancel=None, **options):
    options.setdefault("plan", PlanOptions(objective="flow", solver="highs", time_limit_s=5.0))
    options.setdefault("time_limit_s", 30.0)
    options.setdefault("attempts", 9)
    return replan(
        problem,
        running,
        options=ReplanOptions(**options),
        progress=(lambda _: None) if heard is None else heard.append,
        cancel=cancel or NeverCancelled(),
    )


def test_without_moves_a_lost_node_takes_its_layers_with_it_and_the_rest_is_rerouted():
    left = lost(CLUSTER, "n1")
    kept, flow = zero_moves(left, RUNNING, options=PlanOptions())
    assert unmoved_score(left, RUNNING, options=FOR_FLOW).merit == (flow.value_tokens_per_s,)
    assert kept == placement(n0=(0, 2), n2=(2, 4), n3=(2, 3))
    assert flow == max_flow(left, kept, partial_inference=True)
    assert flow.value_tokens_per_s == pytest.approx(20.0)


def test_without_moves_a_slower_link_only_slows():
    slower = replace(
        CLUSTER,
        cluster=replace(
            CLUSTER.cluster,
            links=tuple(
                Link(source="n0", target=name, bandwidth_bytes_per_s=500.0, latency_s=0.0)
                for name in ("n1", "n3")
            ),
        ),
    )
    kept, flow = zero_moves(slower, RUNNING, options=PlanOptions())
    assert unmoved_score(slower, RUNNING, options=FOR_FLOW).merit == (flow.value_tokens_per_s,)
    assert kept == RUNNING
    assert flow.value_tokens_per_s == pytest.approx(30.0)


def test_what_is_worth_of_the_running_placement_is_worth_of_the_first_answer_by_any_objective():
    options = PlanOptions(objective="decode", time_limit_s=1.0)
    score = unmoved_score(lost(CLUSTER, "n1"), RUNNING, options=options)
    found = answer(lost(CLUSTER, "n1"), plan=options, time_limit_s=1.0).zero_moves
    assert score == found.score
    assert 0 < score.objective_value < score.flow_tokens_per_s


@pytest.mark.parametrize("partial_inference", [True, False])
def test_the_front_holds_for_every_budget_what_trying_everything_finds(partial_inference):
    left = lost(CLUSTER, "n1")
    plan = PlanOptions(
        objective="flow", solver="highs", time_limit_s=5.0, partial_inference=partial_inference
    )
    result = answer(left, plan=plan, attempts=30)
    for point in result.pareto:
        assert point.moved_bytes == moved_layers(RUNNING, point.placement) * BYTES_PER_LAYER
        flow = max_flow(left, point.placement, partial_inference=partial_inference)
        assert point.flow_tokens_per_s == flow.value_tokens_per_s
    best = {}
    for placed in all_placements(left):
        moved = moved_layers(RUNNING, placed) * BYTES_PER_LAYER
        flow = max_flow(left, placed, partial_inference=partial_inference).value_tokens_per_s
        best[moved] = max(best.get(moved, 0.0), flow)
    assert result.pareto[-1].flow_tokens_per_s == pytest.approx(max(best.values()))
    for point in result.pareto:
        assert point.flow_tokens_per_s <= best[point.moved_bytes] * (1 + 1e-9)


def test_the_front_rises_in_bytes_and_flow_and_every_point_was_reported():
    heard = []
    result = answer(lost(CLUSTER, "n0"), heard=heard)
    bytes_moved = [point.moved_bytes for point in result.pareto]
    flows = [point.flow_tokens_per_s for point in result.pareto]
    assert bytes_moved == sorted(set(bytes_moved))
    assert flows == sorted(set(flows))
    assert set(map(id, result.pareto)) <= set(map(id, heard))


def test_the_chosen_answer_keeps_within_the_budget():
    left = lost(CLUSTER, "n1")
    for layers in (0, 1, 2):
        chosen = answer(left, budget_bytes=layers * BYTES_PER_LAYER).chosen
        assert chosen.moved_bytes <= layers * BYTES_PER_LAYER
    free = answer(left)
    assert free.chosen == free.pareto[-1]


def test_an_added_node_is_used():
    without = lost(CLUSTER, "n3")
    running = placement(n0=(0, 2), n1=(2, 4), n2=(2, 4))
    before = max_flow(without, running, partial_inference=True).value_tokens_per_s
    assert answer(CLUSTER, running).chosen.flow_tokens_per_s > before


def test_the_answers_carry_a_bound_as_tight_as_a_search_from_scratch_proves():
    left = lost(CLUSTER, "n1")
    plan_options = PlanOptions(objective="flow", solver="highs", time_limit_s=5.0)
    fresh = compute_plan(
        left, options=plan_options, progress=lambda _: None, cancel=NeverCancelled()
    )
    bound = answer(left, attempts=0).upper_bound_tokens_per_s
    assert bound == pytest.approx(fresh.upper_bound_tokens_per_s)
    best = max(
        max_flow(left, placed, partial_inference=True).value_tokens_per_s
        for placed in all_placements(left)
    )
    assert best <= bound * (1 + 1e-9) < knapsack_bound_tokens_per_s(left)


def test_the_same_seed_gives_the_same_front():
    left = lost(CLUSTER, "n1")
    first, second = (
        [(point.placement, point.moved_bytes) for point in answer(left).pareto] for _ in range(2)
    )
    assert first == second


def test_rules_hold_in_every_answer():
    rules = PlacementRules(
        pinned={"n2": LayerRange(first=2, end=4)},
        excluded_nodes=frozenset({"n3"}),
        max_layers_of={"n0": 2},
        max_hops=2,
    )
    plan = PlanOptions(objective="flow", solver="highs", time_limit_s=5.0, rules=rules)
    for point in answer(CLUSTER, plan=plan).pareto:
        assert point.placement.layers["n2"] == LayerRange(first=2, end=4)
        assert "n3" not in point.placement.layers
        assert len(point.placement.layers.get("n0", range(0))) <= 2


def test_a_cancelled_search_still_answers_without_moves():
    result = answer(lost(CLUSTER, "n1"), cancel=Cancelled())
    assert result.zero_moves.flow_tokens_per_s == pytest.approx(20.0)
    assert result.from_scratch is None
    assert result.chosen.flow_tokens_per_s >= result.zero_moves.flow_tokens_per_s


@pytest.mark.parametrize("options", [{"time_limit_s": 0}, {"budget_bytes": -1}, {"attempts": -1}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidOptions):
        ReplanOptions(**options)


@pytest.mark.parametrize(
    ("num_hotness", "num_starts"), list(itertools.product((1, 2, 3), repeat=2))
)
def test_annealings_for_more_flow_try_every_start_at_every_hotness_short_and_long(
    num_hotness, num_starts
):
    turns = range(3 * num_hotness * num_starts)
    ways = Counter(way_of(turn, num_hotness=num_hotness, num_starts=num_starts) for turn in turns)
    assert ways == {
        Way(start=start, hotness=hotness, is_short=is_short): 1 if is_short else 2
        for start in range(num_starts)
        for hotness in range(num_hotness)
        for is_short in (True, False)
    }


def served(problem, running=RUNNING, **options):
    options.setdefault("plan", PlanOptions(solver="highs", time_limit_s=5.0))
    return replan(
        problem,
        running,
        options=ReplanOptions(time_limit_s=30.0, attempts=12, **options),
        clock=lambda: 0.0,  # work ends the search, not the clock
    )


def most_served(problem, *, most_layers, rules=NO_RULES):
    """By the estimate of every placement that loads so few layers."""
    trials = Trials(problem, PlanOptions(rules=rules))
    return max(
        trials.score(placed).merit[0]
        for placed in all_placements(problem)
        if moved_layers(RUNNING, placed) <= most_layers
        and all(placed.layers.get(name) == held for name, held in rules.pinned.items())
        and placed.layers
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["n0", *(pytest.param(name, marks=pytest.mark.long) for name in ("n1", "n3"))]
)
def test_the_front_of_served_tokens_is_what_trying_every_placement_finds(name):
    left = lost(CLUSTER, name)
    result = served(left)
    values = [point.value for point in result.pareto]
    assert values == sorted(values)
    for point in result.pareto:
        layers = moved_layers(RUNNING, point.placement)
        assert point.moved_bytes == layers * BYTES_PER_LAYER
        assert point.value == point.score.objective_value
        assert point.value >= 0.97 * most_served(left, most_layers=layers)
    assert values[-1] >= 0.97 * most_served(left, most_layers=4 * 3)
    assert result.forecast.simulated.decode_tokens_per_s == result.forecast.value


@pytest.mark.slow
def test_the_answer_that_is_chosen_for_what_it_serves_keeps_the_budget():
    left = lost(CLUSTER, "n0")
    for layers in (2, 3):
        chosen = served(left, budget_bytes=layers * BYTES_PER_LAYER).chosen
        assert chosen.moved_bytes <= layers * BYTES_PER_LAYER
        assert chosen.value >= 0.9 * most_served(left, most_layers=layers)


@pytest.mark.slow
def test_a_component_that_lost_a_layer_leaves_what_the_others_serve():
    apart = replace(RUNNING, layers={**RUNNING.layers, "n3": LayerRange(first=0, end=2)})
    apart = replace(apart, components=(frozenset({"n0", "n1"}), frozenset({"n2", "n3"})))
    left = lost(CLUSTER, "n1")
    result = served(left, apart)
    assert result.zero_moves.value == 0
    unmoved = [point for point in result.pareto if point.moved_bytes == 0]
    assert set(unmoved[0].placement.layers) == {"n2", "n3"}


def test_pinned_nodes_stay_while_others_are_moved_for_what_they_serve():
    rules = PlacementRules(pinned={"n2": LayerRange(first=2, end=4)})
    result = served(lost(CLUSTER, "n1"), plan=PlanOptions(time_limit_s=5.0, rules=rules))
    assert result.chosen.value > 0
    for point in result.pareto:
        assert point.placement.layers["n2"] == LayerRange(first=2, end=4)
