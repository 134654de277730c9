"""The annealing loops: energies from scratch."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.chance import Schedule
from planner.integer_flow import IntegerNetwork, integers, maximum_flow
from planner.placers import loops
from planner.placers.loops import NO_INTEGERS, StageTask
from tests.examples import examples


def random_speeds(rng, *, num_nodes, longest):
    """Mostly falling with layers, sometimes not, and 0 beyond what a node can hold."""
    speeds = np.zeros((num_nodes, longest + 1), dtype=np.int64)
    for node in range(num_nodes):
        limit = int(rng.integers(0, longest + 1))
        for layers in range(1, limit + 1):
            speeds[node, layers] = max(1, int(rng.integers(1, 2000) // layers))
    return speeds


def random_stage_task(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    links = rng.integers(0, 900, size=(n + 1, n + 1)) * (rng.random((n + 1, n + 1)) < 0.8)
    speeds = random_speeds(rng, num_nodes=n, longest=int(rng.integers(1, 7)))
    limits = (speeds > 0).sum(axis=1)
    return StageTask(
        num_layers=int(rng.integers(1, 30)),
        target=int(rng.integers(1, 1500)),
        max_stages=int(rng.integers(1, n + 1)),
        speeds_NJ=speeds,
        limits_NE=limits_with_ends(rng, limits) if seed % 3 else NO_INTEGERS,
        links=links,
        neighbours_NK=rng.integers(0, n, size=(n, int(rng.integers(0, 3)))),
        weight=float(rng.choice([0.0, 1.0, 4.0])),
    ), [int(rank) for rank in rng.integers(-1, n, size=n)]


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 10**6))
def test_annealed_stages_lack_what_they_are_said_to_lack(seed):
    task, ranks = random_stage_task(seed)
    schedule = Schedule(moves=400, hot=2.0, cold=0.05, seed=seed)
    found = loops.anneal_stages(task, ranks=ranks, schedule=schedule)
    # Which nodes of a stage take the rest of a division is the loop's own affair.
    near = task.weight * 2 * len(ranks) / task.target + 1e-9
    assert found.energy == pytest.approx(lack_of_chain(task, found.best), abs=near)
    assert found.energy <= lack_of_chain(task, ranks) + near
    again = loops.anneal_stages(task, ranks=ranks, schedule=schedule)
    assert again == found


def lack_of_chain(task, ranks):
    """Missing layers, excess stages, and what all crossings lack of the target, from scratch."""
    stages = [
        [node for node, rank in enumerate(ranks) if rank == stage]
        for stage in sorted(set(ranks) - {-1})
    ]
    lengths, rooms = [], []
    for number, nodes in enumerate(stages):
        ends = (number == 0) + 2 * (number == len(stages) - 1)

        def speeds(layers, nodes=nodes, ends=ends):
            return [
                0
                if task.limits_NE.size and layers > task.limits_NE[node, ends]
                else int(task.speeds_NJ[node, layers])
                for node in nodes
            ]

        longest = task.speeds_NJ.shape[1] - 1
        length = next((j for j in range(longest, 0, -1) if sum(speeds(j)) >= task.target), 0)
        lengths.append(length)
        rooms.append(equal_parts(task.target, speeds(length)) if length else [0] * len(nodes))
    outside = len(ranks)
    sides = [([outside], [task.target]), *zip(stages, rooms, strict=True)]
    sides.append(([outside], [task.target]))
    deficit = sum(
        crossing_lack(task, *before, *after) for before, after in itertools.pairwise(sides)
    )
    missing = max(0, task.num_layers - sum(lengths)) + max(0, len(stages) - task.max_stages)
    return missing + task.weight * deficit / task.target


def equal_parts(target, rooms):
    """Parts of the target, equal as far as the rooms allow."""
    parts, left = [0] * len(rooms), target
    for number, place in enumerate(sorted(range(len(rooms)), key=rooms.__getitem__)):
        equal = -(-left // (len(rooms) - number))
        parts[place] = min(rooms[place], equal)
        left -= parts[place]
    return parts


def crossing_lack(task, left, left_rooms, right, right_rooms):
    """What the nodes on the left cannot send to those on the right of the target."""
    source, sink = len(left) + len(right), len(left) + len(right) + 1
    edges = [(source, k, room) for k, room in enumerate(left_rooms)]
    edges += [(len(left) + m, sink, room) for m, room in enumerate(right_rooms)]
    edges += [
        (k, len(left) + m, int(task.links[one, other]))
        for k, one in enumerate(left)
        for m, other in enumerate(right)
    ]
    tails, heads, capacities = (integers(column) for column in zip(*edges, strict=True))
    network = IntegerNetwork(
        num_vertices=sink + 1,
        source=source,
        sink=sink,
        tails=tails,
        heads=heads,
        capacities=capacities,
    )
    return task.target - maximum_flow(network).value


def limits_with_ends(rng, limits_N):
    """In half of the cases nodes hold fewer layers at the ends of the model than in its middle."""
    at_ends = np.array([limits_N] * 4).T
    if rng.random() < 0.5:
        at_ends[:, 1:] -= rng.integers(0, 3, size=(len(limits_N), 3))
    return np.maximum(at_ends, 0)
