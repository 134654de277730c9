"""Calls the annealing loops, which are in C. Flows are integers, so that sums are exact.

Tasks have the fields of the C structs, in their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from planner.chance import Schedule, first_random
from planner.domain.placement import LayerRange, Placement
from planner.native import I64, INTEGERS, POINTER, REAL, Packed, function

IntegerArray: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
NO_INTEGERS: IntegerArray = np.zeros((0, 0), dtype=np.int64)

Ends: TypeAlias = tuple[int, int]
"""(first layer, end); equal when nothing is held"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnealedStages:
    """Result of a loop: the least energy, its ranks, and the ranks to continue from."""

    energy: float
    best: list[int]
    last: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """A chain of at most `max_stages` over n nodes that must carry `target`; flows are integers.

    `speeds_NJ[i, j]` is T_j of node i, 0 where it cannot hold j layers. `links[i, k]` is the
    capacity from node i to node k, index n being the coordinator. `neighbours[i]` are nodes worth
    sharing a stage or a crossing with, K for every node. `weight` is what an impassable crossing
    costs, in missing layers. `limits_NE` as in RangeTask; empty where the model's ends cost no
    layers.
    """

    num_layers: int
    target: int
    max_stages: int
    speeds_NJ: IntegerArray
    links: IntegerArray
    neighbours_NK: IntegerArray
    weight: float
    limits_NE: IntegerArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTask:
    """Ranges (first, end) near the `running_N2` ones that must carry `target` over every layer.

    Speeds as in StageTask. A node never holds more than `limits_NE[i, e]` layers, and none while
    `limits_NE[i, 0]` is 0. e is 0 in the middle of the model, 1 with its first layer, 2 with its
    last, 3 with both (`planner.capacity.LayerLimits`). Each layer to load beyond `budget_layers`
    costs `penalty`, each layer that lacks anything costs `charge` beside what it lacks. With
    `spares` 1 (not 0) every layer must reach its target without the fastest node that holds it too.
    `links` as in StageTask; empty where they pass all that nodes compute and ranges need not meet.
    """

    num_layers: int
    target: int
    speeds_NJ: IntegerArray
    limits_NE: IntegerArray
    running_N2: IntegerArray
    budget_layers: int
    penalty: int
    charge: int
    spares: int
    links: IntegerArray


def anneal_stages(task: StageTask, *, ranks: list[int], schedule: Schedule) -> AnnealedStages:
    """Anneal from the stage numbers `ranks` of every node, -1 for nodes in no stage."""
    last, best = (np.array(ranks, dtype=np.int64) for _ in range(2))
    energy: float = _anneal_stages(Packed.of(task), schedule.packed(), last, best)
    if energy < 0:
        raise MemoryError("no memory for annealing stages")
    return AnnealedStages(energy=energy, best=best.tolist(), last=last.tolist())


def anneal_ranges(
    task: RangeTask, *, ranges: list[Ends], hot: int, cold: int = 0, moves: int, seed: int
) -> tuple[int, list[Ends]]:
    """The energy reached, 0 ending the search, and the ranges then; starts from `ranges`.

    Meanwhile the threshold sinks from `hot` to `cold`.
    """
    firsts, ends = (np.array([one[side] for one in ranges], dtype=np.int64) for side in (0, 1))
    energy: int = _anneal_ranges(
        Packed.of(task), hot, cold, moves, first_random(seed), firsts, ends
    )
    if energy < 0:
        raise MemoryError("no memory for annealing ranges")
    return energy, list(zip(firsts.tolist(), ends.tolist(), strict=True))


def ends_of(names: Sequence[str], layers: Mapping[str, LayerRange]) -> list[Ends]:
    """The nodes' layers in the form of the loop."""
    held = [layers.get(name) for name in names]
    return [(0, 0) if one is None else (one.first, one.end) for one in held]


def placement_of(names: Sequence[str], ranges: Sequence[Ends]) -> Placement:
    """The placement that the loop's ranges are."""
    layers = {
        name: LayerRange(first=first, end=end)
        for name, (first, end) in zip(names, ranges, strict=True)
        if end > first
    }
    return Placement(layers=layers)


_anneal_stages = function("anneal_stages", REAL, POINTER, POINTER, INTEGERS, INTEGERS)
_anneal_ranges = function("anneal_ranges", I64, POINTER, *[I64] * 4, INTEGERS, INTEGERS)
