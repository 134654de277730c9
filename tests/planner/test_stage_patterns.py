"""Aligned stages by the integer program, against every aligned placement of tiny clusters."""

import itertools
import random

import pytest
from searched import searched
from tiny_problems import tiny_problem

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.board import NO_SOLVER
from planner.placers.stage_patterns import search_stage_patterns


def search(problem, *, start=None, time_limit_s=20.0, solver="auto", **rules):
    return searched(
        search_stage_patterns,
        problem,
        start=start,
        time_limit_s=time_limit_s,
        solver=solver,
        rules=PlacementRules(**rules),
    )


def flow_of(problem, placed, *, partial_inference=False):
    return max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s


def best_aligned_flow(problem, *, max_stages):
    """Every way to cut the layers into stages, and every way to put the nodes into these."""
    num_layers = problem.model.num_layers
    tables = [problem.profile_of(node.name).tokens_per_s for node in problem.cluster.nodes]
    best = 0.0
    for num_stages in range(1, min(max_stages, len(tables)) + 1):
        for cuts in itertools.combinations(range(1, num_layers), num_stages - 1):
            lengths = [end - first for first, end in itertools.pairwise((0, *cuts, num_layers))]
            for stages in itertools.product(range(num_stages), repeat=len(tables)):
                speeds = [0.0] * num_stages
                for table, stage in zip(tables, stages, strict=True):
                    if lengths[stage] <= len(table):
                        speeds[stage] += table[lengths[stage] - 1]
                best = max(best, min(speeds))
    return best


@pytest.mark.parametrize("solver", ["gurobi", "highs"])
@pytest.mark.parametrize("seed", range(20))
def test_no_aligned_placement_is_better_by_more_than_the_bisection_step(seed, solver):
    rng = random.Random(seed)
    tables = [
        [rng.uniform(1, 20) for _ in range(rng.randint(1, 4))] for _ in range(rng.randint(1, 3))
    ]
    speeds = [rng.choice(tables) for _ in range(rng.randint(3, 5))]
    num_layers = min(6, sum(map(len, speeds)))
    problem = tiny_problem(speeds, num_layers=num_layers)
    max_stages = rng.choice([2, 3, 6])
    best = best_aligned_flow(problem, max_stages=max_stages)
    answer = search(problem, solver=solver, max_hops=max_stages)
    assert answer.solver in (solver, NO_SOLVER)
    placed = answer.placement
    found = 0.0 if placed is None else flow_of(problem, placed)
    assert found <= best * (1 + 1e-9)
    assert found >= best * 0.99


def test_a_hop_limit_is_a_limit_on_the_stages():
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=1)
    for max_hops in (20, 14, 11):
        placed = search(problem, max_hops=max_hops).placement
        assert len(set(placed.layers.values())) <= max_hops


def test_a_hundred_nodes_of_one_region_come_within_a_tenth_of_the_knapsack_bound():
    problem = generated_cluster(num_nodes=100, num_regions=1, seed=0)
    placed = search(problem).placement
    assert flow_of(problem, placed) >= 0.9 * knapsack_bound_tokens_per_s(problem)


def test_the_same_search_finds_the_same_placement():
    problem = generated_cluster(num_nodes=40, num_regions=1, seed=3)
    assert search(problem).placement == search(problem).placement


def test_a_start_that_carries_more_is_kept():
    """Staggered: n0 alone holds layer 0, n1 layer 3, both layers 1 and 2."""
    problem = tiny_problem([[9.0, 9.0, 9.0], [9.0, 9.0, 9.0]], num_layers=4)
    start = Placement(layers={"n0": LayerRange(first=0, end=2), "n1": LayerRange(first=2, end=4)})
    result = search(problem, start=start)
    assert flow_of(problem, result.placement) == pytest.approx(9.0)


def test_every_incumbent_is_better_than_the_one_before_and_told_with_its_exact_flow():
    problem = generated_cluster(num_nodes=60, num_regions=1, seed=5)
    told = []
    searched(search_stage_patterns, problem, progress=told.append)
    flows = [incumbent.flow_tokens_per_s for incumbent in told]
    assert flows == sorted(set(flows))
    assert flows[-1] == pytest.approx(flow_of(problem, told[-1].placement, partial_inference=True))


def test_excluded_nodes_hold_nothing_and_pinned_nodes_what_they_must():
    problem = tiny_problem([[8.0, 6.0]] * 5, num_layers=4)
    pin = LayerRange(first=1, end=3)
    placed = search(
        problem, excluded_nodes=frozenset({"n4"}), pinned={"n0": pin}, max_layers_of={"n1": 1}
    ).placement
    assert "n4" not in placed.layers
    assert placed.layers["n0"] == pin
    assert len(placed.layers.get("n1", [0])) == 1


def test_nothing_is_found_where_aligned_stages_cannot_hold_the_model():
    problem = tiny_problem([[5.0], [5.0]], num_layers=3)
    assert search(problem).placement is None


def test_a_cancelled_search_returns_what_it_has():
    class Cancelled:
        def is_cancelled(self):
            return True

    problem = generated_cluster(num_nodes=30, num_regions=1, seed=0)
    result = searched(search_stage_patterns, problem, cancel=Cancelled())
    assert result.stop_reason == "cancelled"
