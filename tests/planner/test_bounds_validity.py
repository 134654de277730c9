"""Every bound against every placement of hundreds of clusters small enough to try them all."""

import itertools
import math
import random

import numpy as np
import pytest
from tiny_problems import proven_bounds, tiny_problem

from planner.bounds.crossing import crossing_bounds_tokens_per_s
from planner.bounds.knapsack import compute_bound_tokens_per_s, knapsack_bound_tokens_per_s
from planner.bounds.link_groups import LinkTable
from planner.bounds.node_kinds import node_kinds
from planner.bounds.pattern import pattern_bounds_tokens_per_s
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow

ROUNDING = 1 + 1e-9
MOST_PLACEMENTS = 8000


def some_seeds(first, end, step, *, now):
    """So many of the first seeds of each step now; the others with `-m long`."""
    seeds = range(first, end, step)
    return [*seeds[:now], *(pytest.param(seed, marks=pytest.mark.long) for seed in seeds[now:])]


def random_cluster(seed, *, slow_links):
    """3 to 6 nodes, 3 to 8 layers, few kinds, tables that need not be monotone; and its groups."""
    rng = random.Random(seed)
    while True:
        num_nodes, num_layers = rng.randint(3, 6), rng.randint(3, 8)
        tables = [
            [
                rng.choice([4, 6, 8, 9, 12, 20]) / (held ** rng.choice([0.7, 1.0, 1.3]))
                for held in range(1, rng.randint(1, 4) + 1)
            ]
            for _ in range(rng.randint(1, 3))
        ]
        speeds = [rng.choice(tables)[:num_layers] for _ in range(num_nodes)]
        choices = math.prod(
            sum(num_layers - held + 1 for held in range(1, len(table) + 1)) for table in speeds
        )
        if choices <= MOST_PLACEMENTS and sum(map(len, speeds)) >= num_layers:
            break
    groups = {f"n{index}": f"g{rng.randrange(3)}" for index in range(num_nodes)}
    links = {}
    if slow_links:
        for source, target in itertools.permutations(groups, 2):
            if groups[source] != groups[target]:
                links[source, target] = rng.choice([0.5, 1.0, 2.0, 3.0, 5.0])
        if rng.random() < 0.3:
            links[COORDINATOR, rng.choice(list(groups))] = rng.choice([0.5, 2.0])
    return tiny_problem(speeds, num_layers=num_layers, link_tokens_per_s=links), groups


def best_flow(problem, *, partial_inference, max_hops=None):
    """The largest max flow of all placements.

    A node that holds something never takes flow away, so none is left out unless hops are limited:
    then a longer way may close a shorter one. Placements are tried in
    the order of the speed of their slowest layer, which no flow exceeds; the rest can be skipped as
    soon as the best flow reaches it.
    """
    num_layers = problem.model.num_layers
    names = [node.name for node in problem.cluster.nodes]
    left_out = [] if max_hops is None else [(0, 0)]
    options = [
        left_out
        + [
            (first, first + held)
            for held in range(1, problem.profile_of(name).max_layers + 1)
            for first in range(num_layers - held + 1)
        ]
        for name in names
    ]
    covered = np.zeros((1, num_layers))
    for name, ranges in zip(names, options, strict=True):
        own = np.zeros((len(ranges), num_layers))
        for number, (first, end) in enumerate(ranges):
            if end == 0:
                continue
            own[number, first:end] = problem.profile_of(name).tokens_per_s[end - first - 1]
        covered = (covered[:, None, :] + own[None, :, :]).reshape(-1, num_layers)
    slowest = covered.min(axis=1)
    best = 0.0
    for number in np.argsort(-slowest, kind="stable"):
        if slowest[number] <= best * ROUNDING:
            break
        picks = np.unravel_index(number, [len(ranges) for ranges in options])
        placed = Placement(
            layers={
                name: LayerRange(first=ranges[pick][0], end=ranges[pick][1])
                for name, ranges, pick in zip(names, options, picks, strict=True)
                if ranges[pick][1] > 0
            }
        )
        flow = max_flow(problem, placed, partial_inference=partial_inference, max_hops=max_hops)
        best = max(best, flow.value_tokens_per_s)
    return best


def bounds_of(problem, groups):
    """Every bound by itself: pattern and crossing both start at the knapsack bound."""
    knapsack = knapsack_bound_tokens_per_s(problem)
    known = {"num_layers": problem.model.num_layers, "known_bound_tokens_per_s": knapsack}
    pattern = pattern_bounds_tokens_per_s(node_kinds(problem), **known)
    crossing = crossing_bounds_tokens_per_s(
        node_kinds(problem, groups=groups), LinkTable(problem), **known
    )
    return {
        "compute": compute_bound_tokens_per_s(problem),
        "knapsack": knapsack,
        "pattern": min(pattern, default=knapsack),
        "crossing": min(crossing, default=knapsack),
    }


@pytest.mark.parametrize("first_seed", some_seeds(0, 100, 20, now=2))
def test_no_placement_of_a_tiny_cluster_with_slow_links_beats_any_bound(first_seed):
    for seed in range(first_seed, first_seed + 20):
        problem, groups = random_cluster(seed, slow_links=True)
        best = best_flow(problem, partial_inference=bool(seed % 2))
        for method, bound in bounds_of(problem, groups).items():
            assert best <= bound * ROUNDING, (seed, method)


@pytest.mark.parametrize("first_seed", some_seeds(1000, 1120, 40, now=1))
def test_no_placement_of_a_tiny_cluster_with_ample_links_beats_any_bound(first_seed):
    for seed in range(first_seed, first_seed + 40):
        problem, groups = random_cluster(seed, slow_links=False)
        best = best_flow(problem, partial_inference=True)
        for method, bound in bounds_of(problem, groups).items():
            assert best <= bound * ROUNDING, (seed, method)
        for bound in proven_bounds(problem):
            assert best <= bound * ROUNDING, (seed, bound)


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", some_seeds(2000, 2060, 15, now=1))
def test_no_placement_within_a_hop_limit_beats_the_bound_of_that_limit(first_seed):
    lowered = 0
    for seed in range(first_seed, first_seed + 15):
        problem, _ = random_cluster(seed, slow_links=bool(seed % 3 == 0))
        for max_hops in (2, 3):
            best = best_flow(problem, partial_inference=bool(seed % 2), max_hops=max_hops)
            rules = PlacementRules(max_hops=max_hops)
            bounds = list(proven_bounds(problem, rules=rules))
            assert best <= bounds[-1] * ROUNDING, (seed, max_hops)
            lowered += bounds[-1] < min(proven_bounds(problem)) * 0.99
    assert lowered > 0


def test_slow_links_lower_the_bound_of_many_clusters():
    """A crossing bound that never binds would pass the tests above."""
    lowered = 0
    for seed in range(40):
        problem, groups = random_cluster(seed, slow_links=True)
        bounds = bounds_of(problem, groups)
        lowered += bounds["crossing"] < min(bounds["pattern"], bounds["knapsack"]) * 0.99
    assert lowered >= 4
