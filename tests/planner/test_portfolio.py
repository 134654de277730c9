"""All placers in turn."""

import itertools
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import searched
from tiny_problems import all_placements, problems

from planner.bounds.best import upper_bound_tokens_per_s
from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.portfolio import search_by_all
from planner.placers.swarm import place_swarm
from tests.examples import examples


class CancelledAfter:
    """Cancels when the first incumbents are known."""

    def __init__(self, incumbents, count):
        self._incumbents = incumbents
        self._count = count

    def is_cancelled(self):
        return len(self._incumbents) >= self._count


def search(problem, *, start=None, seed=0, progress=lambda _: None, cancel=None, **options):
    return searched(
        search_by_all,
        problem,
        solver="highs",
        seed=seed,
        start=start,
        progress=progress,
        cancel=cancel,
        **options,
    )


@pytest.mark.slow
def test_bounds_are_reported_while_the_best_is_still_the_start():
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=3)
    first = search(problem, time_limit_s=1.0)
    heard = []
    again = search(problem, start=first.placement, progress=heard.append, time_limit_s=1.0)
    flow = max_flow(problem, first.placement, partial_inference=True).value_tokens_per_s
    of_start = [one for one in heard if one.flow_tokens_per_s == pytest.approx(flow)]
    assert of_start[0].placement == first.placement
    assert of_start[0].placer == "start"
    assert of_start[0].upper_bound_tokens_per_s < upper_bound_tokens_per_s(problem)
    assert again.upper_bound_tokens_per_s <= of_start[-1].upper_bound_tokens_per_s


@settings(max_examples=examples(10))
@given(problem=problems(max_nodes=3), partial_inference=st.booleans())
def test_it_finds_and_proves_the_best_placement_of_a_tiny_cluster(problem, partial_inference):
    best = max(
        max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s
        for placed in all_placements(problem)
    )
    result = search(problem, partial_inference=partial_inference)
    flow = (
        0.0
        if result.placement is None
        else max_flow(
            problem, result.placement, partial_inference=partial_inference
        ).value_tokens_per_s
    )
    assert flow == pytest.approx(best, rel=1e-3, abs=1e-6)
    assert result.upper_bound_tokens_per_s >= best * (1 - 1e-4)


def test_what_it_tells_only_improves_and_is_exact():
    problem = generated_cluster(num_nodes=16, num_regions=3, seed=2, unevenness=0.3)
    seen = []
    search(problem, progress=seen.append, cancel=CancelledAfter(seen, 4))
    assert len(seen) >= 4
    for before, after in itertools.pairwise(seen):
        assert after.flow_tokens_per_s >= before.flow_tokens_per_s
        assert after.upper_bound_tokens_per_s <= before.upper_bound_tokens_per_s
    for incumbent in seen:
        flow = max_flow(problem, incumbent.placement, partial_inference=True)
        assert incumbent.flow_tokens_per_s == flow.value_tokens_per_s
        assert incumbent.upper_bound_tokens_per_s >= incumbent.flow_tokens_per_s


def test_a_cancelled_search_returns_the_best_so_far():
    problem = generated_cluster(num_nodes=16, num_regions=3, seed=2)
    seen = []
    result = search(problem, progress=seen.append, cancel=CancelledAfter(seen, 1))
    assert result.stop_reason == "cancelled"
    assert result.placement == seen[-1].placement


def test_it_never_falls_below_its_start_and_says_when_the_time_is_over():
    problem = generated_cluster(num_nodes=30, num_regions=5, seed=4)
    start = place_swarm(problem)
    result = search(problem, start=start, time_limit_s=0.01)
    assert result.stop_reason == "time limit"
    assert (
        max_flow(problem, result.placement, partial_inference=True).value_tokens_per_s
        >= max_flow(problem, start, partial_inference=True).value_tokens_per_s
    )


def test_a_hundred_nodes_in_one_region_come_within_a_tenth_of_the_bound():
    problem = generated_cluster(num_nodes=100, num_regions=1, seed=0)
    seen = []
    search(problem, progress=seen.append, cancel=CancelledAfter(seen, 2))
    assert seen[-1].flow_tokens_per_s >= 0.9 * knapsack_bound_tokens_per_s(problem)


@pytest.mark.parametrize(
    ("cluster", "count"),
    [
        ({"num_nodes": 30, "num_regions": 6, "seed": 2}, 4),
        ({"num_nodes": 40, "num_regions": 1, "seed": 1}, 7),
    ],
)
def test_a_seed_finds_the_same_placements_in_the_same_order_however_fast_the_clock_runs(
    cluster, count
):
    problem = generated_cluster(**cluster)
    orders = []
    for pace in (1.0, 0.1):
        seen = []
        search(
            problem,
            clock=lambda pace=pace: pace * time.monotonic(),
            time_limit_s=300.0,
            seed=3,
            start=place_swarm(problem),
            progress=seen.append,
            cancel=CancelledAfter(seen, count),
        )
        orders.append([replace(incumbent, elapsed_s=0.0) for incumbent in seen[:count]])
    assert len(orders[0]) == count
    assert orders[0] == orders[1]
