import functools
from dataclasses import replace

import pytest
from tiny_problems import all_placements, placement, tiny_problem

from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.base import NeverCancelled
from planner.placers.board import LargestFlow
from planner.placers.budgeted_moves import moved_layers
from planner.placers.stop import ProgramLimits, Stop
from planner.plan_options import PlanOptions
from planner.replanning.answers import Front
from planner.replanning.by_stages import ByStages
from planner.replanning.options import ReplanOptions
from planner.replanning.stay_covers import least_covers
from planner.replanning.stay_groups import StayColumn, StayGroup, with_another_node
from planner.replanning.stay_patterns import StayPatterns
from planner.replanning.stay_program import StayProgram

FAST = [120.0, 70.0, 45.0]
SLOW = [60.0, 30.0]
CLUSTER = tiny_problem([FAST, FAST, SLOW, SLOW], num_layers=4)
RUNNING = placement(n0=(0, 2), n1=(2, 3), n2=(3, 4), n3=(3, 4))


def limits():
    stop = Stop(time_limit_s=60.0, cancel=NeverCancelled())
    return ProgramLimits(solver="highs", seed=0, stop=stop)


def solved(problem, running, target, *, rules=None, partial_inference=True):
    rules = rules or PlacementRules()
    patterns = StayPatterns(
        problem,
        running,
        rules=rules,
        partial_inference=partial_inference,
        target_tokens_per_s=target,
    )
    program = StayProgram(patterns, max_stages=rules.max_hops)
    return program.solve(limits())


def flow_of(problem, placed, *, partial_inference=True):
    return max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s


@functools.cache
def all_loads_and_flows(lost, partial_inference):
    problem = without(lost)
    return [
        (
            moved_layers(RUNNING, placed),
            flow_of(problem, placed, partial_inference=partial_inference),
        )
        for placed in all_placements(problem)
    ]


def fewest_layers(lost, target, *, partial_inference):
    """By trying every placement; None where no placement carries the target."""
    return min(
        (
            loaded
            for loaded, flow in all_loads_and_flows(lost, partial_inference)
            if flow >= target * (1 - 1e-9)
        ),
        default=None,
    )


def without(lost):
    return replace(CLUSTER, cluster=CLUSTER.cluster.without({lost}))


@pytest.mark.parametrize("lost", ["n0", "n2"])
@pytest.mark.parametrize("target", [15.0, 30.0, 45.0, 60.0, 75.0])
def test_whole_stages_load_as_few_layers_as_any_placement_without_partial_inference(lost, target):
    problem = without(lost)
    fewest = fewest_layers(lost, target, partial_inference=False)
    answer = solved(problem, RUNNING, target, partial_inference=False)
    if fewest is None:
        assert answer.layers_held < problem.model.num_layers
        return
    assert answer.layers_held == problem.model.num_layers
    assert answer.layers_to_load == moved_layers(RUNNING, answer.placement) == fewest
    assert flow_of(problem, answer.placement, partial_inference=False) >= target * (1 - 1e-9)


@pytest.mark.parametrize("target", [40.0, 50.0, 60.0, 75.0])
def test_nested_stages_are_never_below_what_trying_everything_finds(target):
    problem = without("n0")
    fewest = fewest_layers("n0", target, partial_inference=True)
    answer = solved(problem, RUNNING, target)
    if answer.layers_held == problem.model.num_layers:
        assert answer.layers_to_load == moved_layers(RUNNING, answer.placement) >= fewest
        assert flow_of(problem, answer.placement) >= target * (1 - 1e-9)
    else:
        whole = solved(problem, RUNNING, target, partial_inference=False)
        assert whole.layers_held < problem.model.num_layers


def test_a_node_over_two_shorter_stages_carries_what_they_do_not():
    problem = tiny_problem([[90.0, 40.0], [60.0], [60.0]], num_layers=2)
    running = placement(n1=(0, 1), n2=(1, 2))
    nested = solved(problem, running, 100.0)
    assert nested.placement == placement(n0=(0, 2), n1=(0, 1), n2=(1, 2))
    assert nested.layers_to_load == 2
    assert flow_of(problem, nested.placement) == pytest.approx(100.0)
    assert solved(problem, running, 100.0, partial_inference=False).layers_held < 2


def test_no_node_is_taken_for_two_of_a_nested_stages_parts():
    problem = tiny_problem([[90.0, 40.0], [60.0], [60.0]], num_layers=2)
    nested = solved(problem, placement(n0=(0, 2)), 100.0)
    assert nested.placement == placement(n0=(0, 2), n1=(0, 1), n2=(1, 2))
    assert nested.layers_to_load == 2


def test_a_shorter_stage_reaches_from_one_node_beside_it_into_the_next():
    problem = tiny_problem([[50.0, 40.0], [50.0, 40.0], [10.0, 60.0], [60.0], [60.0]], num_layers=4)
    running = placement(n0=(0, 2), n1=(2, 4), n2=(1, 3), n3=(0, 1), n4=(3, 4))
    answer = solved(problem, running, 100.0)
    assert answer.placement == running
    assert answer.layers_to_load == 0
    assert flow_of(problem, running) == pytest.approx(100.0)


def test_columns_of_another_target_are_taken_over_where_they_carry_enough():
    problem = tiny_problem([SLOW] * 4, num_layers=4)
    running = placement(n0=(0, 2), n1=(2, 4))

    def program(target, known=()):
        patterns = StayPatterns(
            problem,
            running,
            rules=PlacementRules(),
            partial_inference=False,
            target_tokens_per_s=target,
        )
        return StayProgram(patterns, max_stages=None, known=known)

    higher = program(60.0)
    higher.solve(limits())
    assert {column.tokens_per_s for column in higher.columns} == {60.0}
    lower = program(30.0, known=higher.columns)
    assert list(lower.columns) == list(higher.columns)
    answer = lower.solve(limits())
    assert answer.layers_to_load == 0
    assert 30.0 in {column.tokens_per_s for column in lower.columns}
    assert not program(90.0, known=lower.columns).columns


def test_whoever_holds_a_layer_already_keeps_it_though_its_twin_could_take_it():
    problem = tiny_problem([SLOW] * 4, num_layers=4)
    running = placement(n3=(0, 1), n1=(1, 2), n0=(2, 3), n2=(3, 4))
    answer = solved(problem, running, 60.0)
    assert answer.placement == running
    assert answer.layers_to_load == 0


def test_each_exchange_of_one_node_by_a_free_one_of_its_kind_is_a_column():
    def group(kind, held, *names):
        return StayGroup(
            kind=kind, held=held and LayerRange(first=held[0], end=held[1]), names=names
        )

    groups = [
        group(0, (0, 2), "a"),
        group(0, (2, 4), "b", "c"),
        group(0, None, "d"),
        group(1, (0, 2), "e"),
    ]
    both = LayerRange(first=0, end=2)
    column = StayColumn(
        range=both, held=((0, both), (1, both)), layers_to_load=2, tokens_per_s=50.0
    )
    exchanged = {
        (tuple(number for number, _ in one.held), one.layers_to_load)
        for one in with_another_node(column, groups)
    }
    assert exchanged == {((1, 1), 4), ((1, 2), 4), ((0, 2), 2)}


def test_a_flow_that_no_stage_carries_has_no_answer():
    assert solved(CLUSTER, RUNNING, 1e6) is None


def test_where_every_node_is_pinned_nothing_is_left_to_choose():
    rules = PlacementRules(
        pinned={node.name: LayerRange(first=0, end=1) for node in CLUSTER.cluster.nodes}
    )
    assert solved(CLUSTER, RUNNING, 30.0, rules=rules) is None


def test_a_pinned_node_takes_no_part():
    rules = PlacementRules(pinned={"n0": LayerRange(first=0, end=2)})
    answer = solved(CLUSTER, RUNNING, 30.0, rules=rules)
    assert "n0" not in answer.placement.layers


def test_no_more_stages_are_chosen_than_hops_are_allowed():
    problem = tiny_problem([SLOW] * 6, num_layers=4)
    free = solved(problem, placement(), 60.0)
    assert len({(held.first, held.end) for held in free.placement.layers.values()}) == 4
    few = solved(problem, placement(), 60.0, rules=PlacementRules(max_hops=3))
    assert len({(held.first, held.end) for held in few.placement.layers.values()}) == 3


def test_every_least_cover_is_found_once_and_none_has_a_node_too_many():
    speeds, counts, flow = [30.0, 20.0, 0.0, 12.0], [2, 3, 9, 4], 60.0
    found = list(least_covers(speeds, counts, flow))
    assert len(found) == len(set(found))
    expected = set()
    for a in range(3):
        for b in range(4):
            for d in range(5):
                total = a * 30 + b * 20 + d * 12
                slowest = 12 if d else 20 if b else 30
                if total >= flow > total - slowest:
                    expected.add((a, b, 0, d))
    assert set(found) == expected


def test_an_answer_that_loads_too_much_is_followed_by_one_of_less_flow():
    problem = tiny_problem([[98.0, 95.0], [98.0, 95.0]], num_layers=2)
    running = placement(n0=(0, 2))

    def answers(budget_layers):
        heard = []
        options = ReplanOptions(plan=PlanOptions(solver="highs"))
        front = Front(
            problem,
            running,
            objective=LargestFlow(problem, options.plan),
            hear=heard.append,
        )
        ByStages(problem, options=options, front=front, upper_bound_tokens_per_s=200.0).search(
            Stop(time_limit_s=60.0, cancel=NeverCancelled()), budget_layers=budget_layers
        )
        return [
            (front.layers_to_load(point.placement), round(point.flow_tokens_per_s))
            for point in heard
        ]

    assert answers(budget_layers=1) == [(1, 98), (2, 190)]
    assert answers(budget_layers=0) == [(1, 98), (0, 95)]
