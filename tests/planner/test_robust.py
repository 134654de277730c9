import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import all_placements, placed_problems, placement, problems, tiny_problem

from planner.capacity import whole_components
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.objectives.trial import Trials
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.robust import compute_robust_plan, survival, survival_bounds_tokens_per_s
from tests.examples import examples

OPTIONS = PlanOptions(objective="flow", solver="highs", time_limit_s=10.0)
DECODE = PlanOptions(time_limit_s=5.0)
SPARE = tiny_problem([[50.0, 30.0], [50.0, 30.0], [50.0, 30.0], [50.0, 30.0]], num_layers=2)


def surviving_flow_by_trying_everything(problem, layers, *, max_hops=None):
    flows = [
        max_flow(
            problem,
            Placement(layers={n: held for n, held in layers.layers.items() if n != lost}),
            partial_inference=True,
            max_hops=max_hops,
        ).value_tokens_per_s
        for lost in [None, *layers.layers]
    ]
    return min(flows)


@settings(max_examples=examples(100))
@given(placed_problems(max_nodes=4), st.sampled_from([None, 2]))
def test_what_survives_is_the_least_flow_over_all_losses(placed, max_hops):
    problem, layers = placed
    options = PlanOptions(objective="flow", rules=PlacementRules(max_hops=max_hops))
    found = survival(problem, layers, options=options)
    expected = surviving_flow_by_trying_everything(problem, layers, max_hops=max_hops)
    assert found.value == pytest.approx(expected, abs=1e-6)
    if found.worst_node:
        left = {n: held for n, held in layers.layers.items() if n != found.worst_node}
        again = max_flow(problem, Placement(layers=left), partial_inference=True, max_hops=max_hops)
        assert again.value_tokens_per_s == pytest.approx(found.value)


@settings(max_examples=examples(25))
@given(problems(max_nodes=3))
def test_no_placement_survives_with_more_than_the_bound(problem):
    best = max(
        surviving_flow_by_trying_everything(problem, layers) for layers in all_placements(problem)
    )
    for bound in survival_bounds_tokens_per_s(problem):
        assert best <= bound * (1 + 1e-6) + 1e-6


def test_nothing_survives_where_layers_cannot_be_held_twice():
    problem = tiny_problem([[50.0, 20.0], [50.0]], num_layers=2)
    assert list(survival_bounds_tokens_per_s(problem)) == [0.0]
    robust = compute_robust_plan(problem, options=OPTIONS, cancel=NeverCancelled())
    assert robust.survival.value == 0.0
    assert robust.plan.flow.value_tokens_per_s == pytest.approx(50.0)


def test_covers_with_a_spare_bound_closer_than_the_cluster_without_one_node():
    bounds = list(
        survival_bounds_tokens_per_s(generated_cluster(num_nodes=40, num_regions=1, seed=2))
    )
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 0.75 * bounds[0]


def test_a_robust_plan_gives_up_flow_to_survive():
    chain = tiny_problem([[50.0, 20.0]] * 4, num_layers=2)
    robust = compute_robust_plan(chain, options=OPTIONS, cancel=NeverCancelled())
    best = max(
        surviving_flow_by_trying_everything(chain, layers) for layers in all_placements(chain)
    )
    assert robust.survival.value == pytest.approx(best)
    assert robust.survival.value <= robust.plan.flow.value_tokens_per_s
    assert robust.survival_bound_tokens_per_s >= best


def test_a_spare_is_found_for_every_layer_and_proven_best():
    exposed = placement(n0=(0, 1), n1=(0, 1), n2=(0, 1), n3=(1, 2))
    robust = compute_robust_plan(SPARE, options=OPTIONS, start=exposed, cancel=NeverCancelled())
    assert surviving_flow_by_trying_everything(SPARE, exposed) == 0.0
    assert robust.survival.value == pytest.approx(90.0)
    assert robust.plan.stop_reason == "bound reached"


@pytest.mark.parametrize("partial_inference", [True, False])
def test_a_search_tells_of_ever_more_flow_that_survives(partial_inference):
    problem = generated_cluster(num_nodes=40, num_regions=1, seed=2)
    told = []
    options = PlanOptions(
        objective="flow", time_limit_s=0.5, partial_inference=partial_inference, solver="highs"
    )
    robust = compute_robust_plan(
        problem,
        options=options,
        progress=told.append,
        cancel=NeverCancelled(),
        clock=time.process_time,  # a busy machine must not make the search a shorter one
    )
    survived = [incumbent.objective_value for incumbent in told]
    assert survived == sorted(survived)
    assert survived[-1] == robust.survival.value
    assert told[-1].placement == robust.plan.placement
    assert robust.survival.value > 0.8 * robust.survival_bound_tokens_per_s


def served_by_trying_everything(trials, layers):
    left = [layers.without({lost}) for lost in ["none", *layers.layers]]
    return min(trials.score(whole_components(trials.problem, one)).merit[0] for one in left)


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        tiny_problem([[50.0, 20.0]] * 4, num_layers=2),
        tiny_problem([[90.0, 50.0, 20.0], [60.0, 40.0, 5.0], [30.0, 25.0, 20.0]], num_layers=3),
    ],
    ids=["alike", "mixed"],
)
def test_a_robust_plan_for_decode_leaves_the_most_served_after_the_worst_loss(problem):
    trials = Trials(problem, DECODE)
    best = max(served_by_trying_everything(trials, one) for one in all_placements(problem))
    robust = compute_robust_plan(problem, options=DECODE, cancel=NeverCancelled())
    left = served_by_trying_everything(trials, robust.plan.placement)
    assert robust.survival.value == pytest.approx(left, rel=2e-3)
    assert left >= 0.97 * best > 0
    assert robust.survival_bound_tokens_per_s is None
    assert robust.plan.forecast.objective == "decode"
    assert robust.plan.forecast.estimated.decode_tokens_per_s >= left


def test_where_no_loss_can_be_survived_the_plan_serves_the_most():
    robust = compute_robust_plan(
        tiny_problem([[50.0, 20.0], [50.0]], num_layers=2), options=DECODE, cancel=NeverCancelled()
    )
    assert robust.survival.value == robust.survival_bound_tokens_per_s == 0
    assert robust.plan.forecast.value > 0


def test_what_components_without_the_lost_node_serve_survives():
    problem = tiny_problem([[50.0, 20.0]] * 3, num_layers=2)
    layers = placement(n0=(0, 2), n1=(0, 1), n2=(1, 2)).layers
    apart = Placement(layers=layers, components=(frozenset({"n0"}), frozenset({"n1", "n2"})))
    alone = Trials(problem, DECODE).score(placement(n0=(0, 2))).merit[0]
    found = survival(problem, apart, options=DECODE)
    assert found.value == pytest.approx(alone)
    assert found.value > 0
    assert found.worst_node in {"n1", "n2"}


def test_pinned_nodes_stay_where_they_are():
    pin = LayerRange(first=0, end=2)
    options = PlanOptions(
        objective="flow",
        solver="highs",
        time_limit_s=10.0,
        rules=PlacementRules(pinned={"n3": pin}),
    )
    robust = compute_robust_plan(SPARE, options=options, cancel=NeverCancelled())
    assert robust.plan.placement.layers["n3"] == pin


def test_the_same_seed_gives_the_same_robust_plan():
    first, second = (
        compute_robust_plan(SPARE, options=OPTIONS, cancel=NeverCancelled()) for _ in range(2)
    )
    assert first.plan.placement == second.plan.placement
