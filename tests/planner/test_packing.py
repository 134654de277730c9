"""Components that serve most together, held against every choice of disjoint ones."""

import itertools
import random

import pytest
from tiny_problems import tiny_problem

from planner.domain.placement import LayerRange, Placement
from planner.objectives.packing import Packing
from planner.placers.base import NeverCancelled
from planner.placers.stop import ProgramLimits, Stop

PROBLEM = tiny_problem([[90.0, 50.0]] * 7, num_layers=2)
NAMES = [node.name for node in PROBLEM.cluster.nodes]


def limits() -> ProgramLimits:
    stop = Stop(time_limit_s=60.0, cancel=NeverCancelled(), clock=lambda: 0.0)
    return ProgramLimits(seed=0, solver="highs", stop=stop)


def component(names: frozenset[str]) -> Placement:
    return Placement(layers={name: LayerRange(first=0, end=2) for name in sorted(names)})


def value_of(placement: Placement, known: dict[frozenset[str], float]) -> float:
    return sum(known[frozenset(part.layers)] for part in placement.parts)


@pytest.mark.parametrize("seed", range(8))
def test_the_components_chosen_serve_most_of_all_disjoint_ones(seed: int) -> None:
    chance = random.Random(seed)
    known: dict[frozenset[str], float] = {}
    packing = Packing(PROBLEM)
    for _ in range(9):
        names = frozenset(chance.sample(NAMES, chance.randint(1, 4)))
        value = chance.uniform(1.0, 9.0)
        known[names] = max(value, known.get(names, 0.0))
        packing.offer(component(names), value)
    most = max(
        sum(known[names] for names in some)
        for count in range(1, len(known) + 1)
        for some in itertools.combinations(known, count)
        if sum(map(len, some)) == len(frozenset().union(*some))
    )
    packed = packing.packed(limits())
    assert (max(known.values()) if packed is None else value_of(packed, known)) == pytest.approx(
        most
    )
    assert packing.worth(frozenset(NAMES)) == pytest.approx(most)


def test_what_is_known_better_replaces_what_was_offered() -> None:
    packing = Packing(PROBLEM)
    for names, value in ((NAMES[:2], 5.0), (NAMES[2:4], 5.0), (NAMES[:4], 8.0)):
        packing.offer(component(frozenset(names)), value)
    assert packing.packed(limits()) is not None
    served = {frozenset(NAMES[:4]): 12.0}
    assert packing.packed(limits(), lambda part: served.get(frozenset(part.layers))) is None
