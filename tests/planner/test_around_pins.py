"""Stages laid around pinned ranges, against every chain of stages of tiny clusters."""

import itertools
import random

import pytest
from searched import searched
from tiny_problems import all_placements, tiny_problem

from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.around_pins import AroundPins
from planner.placers.base import NeverCancelled
from planner.placers.stage_annealing import search_stage_annealing
from planner.placers.stage_patterns import search_stage_patterns
from planner.plan_options import PlanOptions
from planner.planning import compute_plan

QUIET = {"progress": lambda incumbent: None, "cancel": NeverCancelled()}
PINNED = {"n1": LayerRange(first=2, end=4)}
# The others hold five of the six layers: without the pinned node nothing is complete.
NEEDY = tiny_problem([[9.0, 8.0], [9.0, 8.0], [9.0, 8.0], [7.0]], num_layers=6)


def flow_of(problem, placed, *, max_hops=None):
    return max_flow(problem, placed, partial_inference=False, max_hops=max_hops).value_tokens_per_s


def best_chain_flow(problem, pinned, *, max_hops):
    """Every way to cut the layers into stages, and every way to put the free nodes into these."""
    num_layers = problem.model.num_layers
    free = [node.name for node in problem.cluster.nodes if node.name not in pinned]
    tables = {
        node.name: problem.profile_of(node.name).tokens_per_s for node in problem.cluster.nodes
    }
    best = 0.0
    for num_stages in range(1, min(max_hops, num_layers) + 1):
        for cuts in itertools.combinations(range(1, num_layers), num_stages - 1):
            ranges = list(itertools.pairwise((0, *cuts, num_layers)))
            fixed = [
                sum(
                    tables[name][len(pin) - 1]
                    for name, pin in pinned.items()
                    if (pin.first, pin.end) == held
                )
                for held in ranges
            ]
            for stages in itertools.product(range(num_stages), repeat=len(free)):
                speeds = list(fixed)
                for name, stage in zip(free, stages, strict=True):
                    layers = ranges[stage][1] - ranges[stage][0]
                    if layers <= len(tables[name]):
                        speeds[stage] += tables[name][layers - 1]
                best = max(best, min(speeds))
    return best


@pytest.mark.parametrize("max_hops", [None, 3])
@pytest.mark.parametrize("seed", range(12))
def test_some_order_of_the_nodes_makes_the_best_chain_around_the_pins(seed, max_hops):
    chance = random.Random(seed)
    problem = tiny_problem(
        [
            sorted((chance.uniform(5, 50) for _ in range(chance.randint(1, 3))), reverse=True)
            for _ in range(5)
        ],
        num_layers=chance.randint(3, 5),
    )
    pinned = {}
    for name in ("n0", "n3"):
        longest = problem.profile_of(name).max_layers
        length = chance.randint(1, min(longest, problem.model.num_layers))
        first = chance.randint(0, problem.model.num_layers - length)
        pinned[name] = LayerRange(first=first, end=first + length)
    rules = PlacementRules(pinned=pinned, max_hops=max_hops)
    around = AroundPins(problem, rules)
    laid = [
        placed
        for order in itertools.permutations(["n1", "n2", "n4"])
        if (placed := around.laid(order, above_tokens_per_s=0.0)) is not None
    ]
    for placed in laid:
        assert dict(placed.layers).items() >= pinned.items()
    best = max((flow_of(problem, placed, max_hops=max_hops) for placed in laid), default=0.0)
    expected = best_chain_flow(problem, pinned, max_hops=max_hops or problem.model.num_layers)
    assert best >= expected * (1 - 2e-3)


def test_nothing_is_laid_that_is_not_better():
    around = AroundPins(NEEDY, PlacementRules(pinned=PINNED))
    order = ["n0", "n2", "n3"]
    assert around.laid(order, above_tokens_per_s=0.0) is not None
    assert around.laid(order, above_tokens_per_s=100.0) is None


@pytest.mark.parametrize("method", [search_stage_patterns, search_stage_annealing])
def test_stages_use_a_pinned_node_where_the_others_cannot_hold_the_model(method):
    rules = PlacementRules(pinned=PINNED)
    found = searched(method, NEEDY, partial_inference=False, rules=rules).placement
    best = max(
        flow_of(NEEDY, placed)
        for placed in all_placements(NEEDY)
        if placed.layers.get("n1") == PINNED["n1"]
    )
    assert found.layers["n1"] == PINNED["n1"]
    assert flow_of(NEEDY, found) == pytest.approx(best, rel=1e-2)


def test_pins_across_the_stages_of_a_larger_cluster_cost_little_without_partial_inference():
    problem = generated_cluster(num_nodes=30, num_regions=1, seed=3)
    names = sorted(node.name for node in problem.cluster.nodes)
    options = PlanOptions(
        objective="flow",
        time_limit_s=60.0,
        partial_inference=False,
        placer="stage-patterns",
        solver="highs",
    )
    free = compute_plan(problem, options=options, **QUIET)
    pinned = {
        names[0]: LayerRange(first=1, end=2),
        names[7]: LayerRange(first=38, end=39),
    }
    plan = compute_plan(
        problem,
        options=PlanOptions(
            objective="flow",
            time_limit_s=60.0,
            partial_inference=False,
            placer="stage-patterns",
            solver="highs",
            rules=PlacementRules(pinned=pinned),
        ),
        **QUIET,
    )
    assert dict(plan.placement.layers).items() >= pinned.items()
    assert plan.flow.value_tokens_per_s >= 0.8 * free.flow.value_tokens_per_s


def test_a_cluster_whose_every_usable_node_is_pinned_is_planned():
    rules = PlacementRules(
        pinned={"n0": LayerRange(first=0, end=2), "n1": LayerRange(first=2, end=4)},
        excluded_nodes=frozenset({"n2"}),
    )
    problem = tiny_problem([[9.0, 8.0], [9.0, 7.0], [9.0, 8.0]], num_layers=4)
    for objective in ("flow", "decode"):
        options = PlanOptions(objective=objective, time_limit_s=20.0, rules=rules)
        plan = compute_plan(problem, options=options, **QUIET)
        assert plan.placement.layers == rules.pinned
        assert plan.flow.value_tokens_per_s == pytest.approx(7.0)
