"""Every method on tiny problems under rules, against every placement, and against what it found
when these numbers were written down.

The clock stands still, so that work alone ends a search: the same plan on any machine.
"""

import pytest
from tiny_problems import all_placements, tiny_problem

from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers.portfolio import METHODS
from planner.plan_options import PlanOptions
from planner.planning import compute_plan

PIN = {"n1": LayerRange(first=1, end=3)}
# The best of all placements splits unevenly and overlaps.
UNEVEN = tiny_problem([[100.0, 60.0, 30.0], [50.0, 24.0], [50.0, 24.0], [30.0, 10.0]], num_layers=4)
SLOW = tiny_problem(
    [[8.0, 4.0], [8.0, 4.0], [5.0, 2.0]],
    num_layers=3,
    link_tokens_per_s={("n0", "n1"): 2.0, ("n1", "n2"): 3.0, ("coordinator", "n0"): 5.0},
)
CASES = {
    "uneven": (UNEVEN, PlacementRules(), True),
    "uneven, whole ranges": (UNEVEN, PlacementRules(), False),
    "uneven, pinned": (UNEVEN, PlacementRules(pinned=PIN), True),
    "slow": (SLOW, PlacementRules(), True),
    "slow, whole ranges": (SLOW, PlacementRules(), False),
    "slow, two hops": (SLOW, PlacementRules(max_hops=2), True),
}
# Flows in tokens/s by case, baselines included; then the bounds.
FOUND = {
    "auto": ((60, 60, 50, 6, 6, 6), (60, 60, 50, 6, 6, 6)),
    "milp": ((60, 60, 50, 6, 6, 6), (60, 60, 50, 6, 6, 6)),
    "stage-patterns": ((58, 58, 34, 4, 4, 4), (62.5, 62.5, 62.5, 7, 7, 7)),
    "region-chain": ((58, 58, 34, 4, 4, 4), (62.5, 62.5, 62.5, 7, 7, 7)),
    "stage-annealing": ((58, 58, 34, 6, 6, 6), (62.5, 62.5, 62.5, 7, 7, 7)),
    "interval-annealing": ((60, 60, 50, 6, 6, 6), (62.5, 62.5, 62.5, 7, 7, 7)),
}


def plan_of(case, method):
    problem, rules, partial_inference = CASES[case]
    return compute_plan(
        problem,
        options=PlanOptions(
            objective="flow",
            placer=method,
            solver="highs",
            time_limit_s=20.0,
            rules=rules,
            partial_inference=partial_inference,
        ),
        clock=lambda: 0.0,
    )


def best_of_all(case):
    problem, rules, partial_inference = CASES[case]
    return max(
        max_flow(
            problem, placed, partial_inference=partial_inference, max_hops=rules.max_hops
        ).value_tokens_per_s
        for placed in all_placements(problem)
        if all(placed.layers.get(name) == held for name, held in rules.pinned.items())
    )


@pytest.mark.parametrize("case", CASES)
def test_no_method_exceeds_the_best_placement_and_none_proves_a_bound_below_it(case):
    best = best_of_all(case)
    for method in METHODS:
        plan = plan_of(case, method)
        assert plan.flow.value_tokens_per_s <= best * (1 + 1e-6)
        assert plan.upper_bound_tokens_per_s >= best * (1 - 1e-4)
        assert dict(plan.placement.layers).items() >= dict(CASES[case][1].pinned).items()


@pytest.mark.parametrize(
    "method",
    METHODS,
)
def test_every_method_finds_and_proves_what_it_did(method):
    flows, bounds = FOUND[method]
    for case, flow, bound in zip(CASES, flows, bounds, strict=True):
        plan = plan_of(case, method)
        assert plan.flow.value_tokens_per_s == pytest.approx(flow, rel=1e-6), case
        # A search ends within the gap of a bound, so one proven later need not be told.
        assert plan.upper_bound_tokens_per_s == pytest.approx(bound, rel=2e-3), case
        again = plan_of(case, method)
        assert again.placement == plan.placement, case
