import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import all_placements, placed_problems, placement, problems, tiny_problem

from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.base import InvalidOptions, NeverCancelled
from planner.plan_options import PlanOptions
from planner.robust import compute_robust_plan, survival, survival_bounds_tokens_per_s
from tests.examples import examples

OPTIONS = PlanOptions(objective="flow", solver="highs", time_limit_s=10.0)
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
    plan = compute_robust_plan(problem, options=OPTIONS, cancel=NeverCancelled())
    assert plan.survival.value == 0.0
    assert plan.flow.value_tokens_per_s == pytest.approx(50.0)


def test_covers_with_a_spare_bound_closer_than_the_cluster_without_one_node():
    bounds = list(
        survival_bounds_tokens_per_s(generated_cluster(num_nodes=40, num_regions=1, seed=2))
    )
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 0.75 * bounds[0]


def test_a_robust_plan_gives_up_flow_to_survive():
    chain = tiny_problem([[50.0, 20.0]] * 4, num_layers=2)
    plan = compute_robust_plan(chain, options=OPTIONS, cancel=NeverCancelled())
    best = max(
        surviving_flow_by_trying_everything(chain, layers) for layers in all_placements(chain)
    )
    assert plan.survival.value == pytest.approx(best)
    assert plan.survival.value <= plan.flow.value_tokens_per_s
    assert plan.survival_bound_tokens_per_s >= best
    assert plan.flow == max_flow(chain, plan.placement, partial_inference=True)


def test_a_spare_is_found_for_every_layer_and_proven_best():
    exposed = placement(n0=(0, 1), n1=(0, 1), n2=(0, 1), n3=(1, 2))
    plan = compute_robust_plan(SPARE, options=OPTIONS, start=exposed, cancel=NeverCancelled())
    assert surviving_flow_by_trying_everything(SPARE, exposed) == 0.0
    assert plan.survival.value == pytest.approx(90.0)
    assert plan.stop_reason == "bound reached"


@pytest.mark.parametrize("partial_inference", [True, False])
def test_a_search_tells_of_ever_more_flow_that_survives(partial_inference):
    problem = generated_cluster(num_nodes=40, num_regions=1, seed=2)
    told = []
    options = PlanOptions(
        objective="flow", time_limit_s=0.5, partial_inference=partial_inference, solver="highs"
    )
    plan = compute_robust_plan(
        problem,
        options=options,
        progress=told.append,
        cancel=NeverCancelled(),
        clock=time.process_time,  # a busy machine must not make the search a shorter one
    )
    survived = [incumbent.objective_value for incumbent in told]
    assert survived == sorted(survived)
    assert survived[-1] == plan.survival.value
    assert told[-1].placement == plan.placement
    assert plan.survival.value > 0.8 * plan.survival_bound_tokens_per_s


def test_another_objective_than_the_flow_is_refused():
    with pytest.raises(InvalidOptions, match="choose the objective 'flow'"):
        compute_robust_plan(SPARE, options=PlanOptions(), cancel=NeverCancelled())


def test_pinned_nodes_stay_where_they_are():
    pin = LayerRange(first=0, end=2)
    options = PlanOptions(
        objective="flow",
        solver="highs",
        time_limit_s=10.0,
        rules=PlacementRules(pinned={"n3": pin}),
    )
    plan = compute_robust_plan(SPARE, options=options, cancel=NeverCancelled())
    assert plan.placement.layers["n3"] == pin


def test_the_same_seed_gives_the_same_robust_plan():
    first, second = (
        compute_robust_plan(SPARE, options=OPTIONS, cancel=NeverCancelled()) for _ in range(2)
    )
    assert first.placement == second.placement
