import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_annealing_loops import limits_with_ends, random_speeds
from tiny_problems import placement, tiny_problem

from planner.capacity import coverage_tokens_per_s
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.placers import loops
from planner.placers.budgeted_moves import moved_layers
from planner.placers.loops import NO_INTEGERS, RangeTask
from planner.placers.range_annealing import (
    RangeAnnealing,
    links_that_may_bind,
)
from tests.examples import examples

ALIKE = [[20.0, 10.0], [20.0, 10.0], [20.0, 10.0]]
SLOW_WAY = {("n0", "n1"): 1.0}


def annealed(problem, running, *, links, target, budget, seed=0):
    annealing = RangeAnnealing(problem, running, rules=PlacementRules(), links=links)
    return annealing.attempt(
        running,
        target_tokens_per_s=target,
        budget_layers=budget,
        hotness=0.3,
        effort=0.01,
        seed=seed,
    )


def test_links_that_pass_all_that_nodes_compute_are_left_out():
    assert links_that_may_bind(tiny_problem(ALIKE, num_layers=4), partial_inference=True) is None


def test_slow_links_and_ranges_that_must_meet_are_not_left_out():
    slow = tiny_problem(ALIKE, num_layers=4, link_tokens_per_s=SLOW_WAY)
    links = links_that_may_bind(slow, partial_inference=True)
    assert links is not None
    assert links[0, 1] < links[0, 2]
    ample = tiny_problem(ALIKE, num_layers=4)
    assert links_that_may_bind(ample, partial_inference=False) is not None


def test_with_links_layers_go_where_the_way_is_fast():
    problem = tiny_problem(ALIKE, num_layers=4, link_tokens_per_s=SLOW_WAY)
    running = placement(n0=(0, 2), n1=(2, 4))
    links = links_that_may_bind(problem, partial_inference=True)
    for seed in range(5):
        seeing = annealed(problem, running, links=links, target=9.0, budget=2, seed=seed)
        flow = max_flow(problem, seeing, partial_inference=True).value_tokens_per_s
        assert flow == pytest.approx(10.0)
        assert moved_layers(running, seeing) <= 2
        blind = annealed(problem, running, links=None, target=9.0, budget=2, seed=seed)
        assert min(coverage_tokens_per_s(problem, blind)) == pytest.approx(10.0)
        assert blind == running


def test_what_cannot_be_reached_without_moves_is_not_moved_for_when_nothing_may_move():
    problem = tiny_problem(ALIKE, num_layers=4)
    running = placement(n0=(0, 2), n1=(2, 4))
    assert annealed(problem, running, links=None, target=10.0, budget=0) == running


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 10**6), spares=st.sampled_from([0, 1]))
def test_the_energy_is_what_the_ranges_lack_counted_from_scratch(seed, spares):
    rng = np.random.default_rng(seed)
    n, longest, num_layers = int(rng.integers(1, 12)), int(rng.integers(1, 7)), 8
    speeds = random_speeds(rng, num_nodes=n, longest=longest)
    limits = (speeds > 0).sum(axis=1)
    firsts = [int(rng.integers(0, 3)) for _ in limits]
    ranges = [
        (first, min(num_layers, first + int(rng.integers(0, limit + 1))))
        for first, limit in zip(firsts, limits, strict=True)
    ]
    task = RangeTask(
        num_layers=num_layers,
        target=int(rng.integers(1, 1500)),
        speeds_NJ=speeds,
        limits_NE=limits_with_ends(rng, limits * (rng.random(n) < 0.9)),
        running_N2=np.array([ranges[0], *((first, first + 1) for first in firsts[1:])]),
        budget_layers=int(rng.integers(0, 12)),
        penalty=int(rng.integers(1, 900)),
        charge=int(rng.integers(0, 300)),
        spares=spares,
        links=rng.integers(0, 900, size=(n + 1, n + 1)) if seed % 2 else NO_INTEGERS,
    )
    arguments = {"ranges": ranges, "hot": 700, "moves": 600, "seed": seed + 1}
    energy, found = loops.anneal_ranges(task, **arguments)
    assert energy == energy_from_scratch(task, found) <= energy_from_scratch(task, ranges) + 700
    for node, (first, end) in enumerate(found):
        ends = (first == 0) + 2 * (end == num_layers)
        assert (first, end) == ranges[node] or 0 <= end - first <= task.limits_NE[node, ends]
    assert loops.anneal_ranges(task, **arguments) == (energy, found)


def energy_from_scratch(task, ranges):
    """The fastest of a layer's nodes is not counted if one is to be spare."""
    held = [(node, range(first, end)) for node, (first, end) in enumerate(ranges) if end > first]
    total = 0
    for layer in range(task.num_layers):
        parts = sorted(carried(task, ranges, node) for node, layers in held if layer in layers)
        covered = sum(parts[:-1] if task.spares else parts)
        total += task.target - covered + task.charge if covered < task.target else 0
    loaded = sum(len(set(layers) - set(range(*task.running_N2[node]))) for node, layers in held)
    return total + task.penalty * max(0, loaded - task.budget_layers)


def carried(task, ranges, node):
    first, end = ranges[node]
    speed = int(task.speeds_NJ[node, end - first])
    if not task.links.size:
        return speed
    others = [(i, other) for i, other in enumerate(ranges) if other[0] < other[1]]
    received = sum(int(task.links[i, node]) for i, other in others if other[1] == first)
    sent = sum(int(task.links[node, i]) for i, other in others if other[0] == end)
    coordinator = len(ranges)
    received += int(task.links[coordinator, node]) if first == 0 else 0
    sent += int(task.links[node, coordinator]) if end == task.num_layers else 0
    return min(speed, received, sent)
