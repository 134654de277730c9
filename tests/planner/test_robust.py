import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import all_placements, placed_problems, placement, problems, tiny_problem

from planner.compute_plan import PlanOptions
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.base import NeverCancelled
from planner.robust import (
    anneal_survival,
    compute_robust_plan,
    survival,
    survival_bound_tokens_per_s,
)

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


@settings(max_examples=100)
@given(placed_problems(max_nodes=4), st.sampled_from([None, 2]))
def test_what_survives_is_the_least_flow_over_all_losses(placed, max_hops):
    problem, layers = placed
    options = PlanOptions(rules=PlacementRules(max_hops=max_hops))
    found = survival(problem, layers, options=options)
    expected = surviving_flow_by_trying_everything(problem, layers, max_hops=max_hops)
    assert found.flow_tokens_per_s == pytest.approx(expected, abs=1e-6)
    if found.worst_node:
        left = {n: held for n, held in layers.layers.items() if n != found.worst_node}
        again = max_flow(problem, Placement(layers=left), partial_inference=True, max_hops=max_hops)
        assert again.value_tokens_per_s == pytest.approx(found.flow_tokens_per_s)


@settings(max_examples=25, deadline=None)
@given(problems(max_nodes=3))
def test_no_placement_survives_with_more_than_the_bound(problem):
    bound = survival_bound_tokens_per_s(problem)
    for layers in all_placements(problem):
        assert surviving_flow_by_trying_everything(problem, layers) <= bound * (1 + 1e-6) + 1e-6


def test_a_robust_plan_gives_up_flow_to_survive():
    chain = tiny_problem([[50.0, 20.0]] * 4, num_layers=2)
    plan = compute_robust_plan(chain, options=OPTIONS, cancel=NeverCancelled())
    best = max(
        surviving_flow_by_trying_everything(chain, layers) for layers in all_placements(chain)
    )
    assert plan.survival.flow_tokens_per_s == pytest.approx(best)
    assert plan.survival.flow_tokens_per_s <= plan.flow.value_tokens_per_s
    assert plan.survival_bound_tokens_per_s >= best
    assert plan.flow == max_flow(chain, plan.placement, partial_inference=True)


def test_annealing_finds_a_spare_for_every_layer():
    exposed = placement(n0=(0, 1), n1=(0, 1), n2=(0, 1), n3=(1, 2))
    found = anneal_survival(
        SPARE, exposed, target_tokens_per_s=30.0, rules=PlacementRules(), moves=5000, seed=1
    )
    assert surviving_flow_by_trying_everything(SPARE, exposed) == 0.0
    assert surviving_flow_by_trying_everything(SPARE, found) >= 30.0


def test_pinned_nodes_stay_where_they_are():
    pin = LayerRange(first=0, end=2)
    options = PlanOptions(
        solver="highs", time_limit_s=10.0, rules=PlacementRules(pinned={"n3": pin})
    )
    plan = compute_robust_plan(SPARE, options=options, cancel=NeverCancelled())
    assert plan.placement.layers["n3"] == pin


def test_the_same_seed_gives_the_same_robust_plan():
    first, second = (
        compute_robust_plan(SPARE, options=OPTIONS, cancel=NeverCancelled()) for _ in range(2)
    )
    assert first.placement == second.placement
