"""Calls the annealing loops, which are in C. Flows are integers, so that sums are exact.

Tasks have the fields of the C structs, in their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from planner.chance import Schedule
from planner.native import I64, INTEGERS, POINTER, REAL, Packed, function

IntegerArray: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
NO_INTEGERS: IntegerArray = np.zeros((0, 0), dtype=np.int64)

Energy = TypeVar("Energy", int, float)
State = TypeVar("State")
Range: TypeAlias = tuple[int, int]
"""(first layer, layers held)"""
Ends: TypeAlias = tuple[int, int]
"""(first layer, end); equal when nothing is held"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annealed(Generic[Energy, State]):
    """Where a loop ended: the least energy found, its state, and the state to go on from."""

    energy: Energy
    best: State
    last: State


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """A chain of at most `max_stages` over n nodes that shall carry `target`; flows are integers.

    `speeds_NJ[i, j]` is T_j of node i, 0 where it cannot hold j layers. `links[i, k]` is the
    capacity from node i to node k, index n being the coordinator. `neighbours[i]` are nodes worth
    sharing a stage or a crossing with, K for every node. `weight` is what an impassable crossing
    costs, in missing layers. `limits_NE` as in IntervalTask; empty where the model's ends cost no
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
class IntervalTask:
    """Ranges for n nodes that shall cover every layer with `target`; as in StageTask.

    A node never holds more than `limits_NE[i, e]` layers, and none while `limits_NE[i, 0]` is 0.
    e is 0 in the middle of the model, 1 with its first layer, 2 with its last, 3 with both
    (`planner.capacity.LayerLimits`). With `spares`
    1 (not 0) they shall cover every layer also without the fastest node that holds it.
    """

    num_layers: int
    target: int
    speeds_NJ: IntegerArray
    limits_NE: IntegerArray
    spares: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveTask:
    """Ranges (first, end) near the `running_N2` ones that shall carry `target` over every layer.

    Speeds and limits as in IntervalTask. Each layer to load beyond `budget_layers` costs `penalty`,
    each layer that lacks anything costs `charge` beside what it lacks. `links` as in StageTask;
    empty where they pass all that nodes compute and ranges need not meet.
    """

    num_layers: int
    target: int
    speeds_NJ: IntegerArray
    limits_NE: IntegerArray
    running_N2: IntegerArray
    budget_layers: int
    penalty: int
    charge: int
    links: IntegerArray


def anneal_stages(
    task: StageTask, *, ranks: list[int], schedule: Schedule
) -> Annealed[float, list[int]]:
    """Anneal from the stage numbers `ranks` of every node, -1 for nodes in no stage."""
    last, best = (np.array(ranks, dtype=np.int64) for _ in range(2))
    energy: float = _anneal_stages(Packed.of(task), schedule.packed(), last, best)
    if energy < 0:
        raise MemoryError("no memory for annealing stages")
    return Annealed(energy=energy, best=best.tolist(), last=last.tolist())


def anneal_intervals(
    task: IntervalTask, *, ranges: list[Range], schedule: Schedule
) -> Annealed[int, list[Range]]:
    """Anneal from `ranges`, one for every node."""
    last, best = _columns(ranges), _columns(ranges)
    missing: int = _anneal_intervals(Packed.of(task), schedule.packed(), *last, *best)
    if missing < 0:
        raise MemoryError("no memory for annealing intervals")
    return Annealed(energy=missing, best=_pairs(best), last=_pairs(last))


def anneal_moves(
    task: MoveTask, *, ranges: list[Ends], threshold: int, moves: int, seed: int
) -> tuple[int, list[Ends]]:
    """The energy reached, 0 ending the search, and the ranges then; starts from `ranges`.

    `seed` is in 1 .. 2**31 - 2.
    """
    columns = _columns(ranges)
    energy: int = _anneal_moves(Packed.of(task), threshold, moves, seed, *columns)
    if energy < 0:
        raise MemoryError("no memory for annealing moves")
    return energy, _pairs(columns)


def _columns(ranges: Sequence[tuple[int, int]]) -> list[IntegerArray]:
    return [np.array([one[side] for one in ranges], dtype=np.int64) for side in (0, 1)]


def _pairs(columns: list[IntegerArray]) -> list[tuple[int, int]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


_anneal_stages = function("anneal_stages", REAL, POINTER, POINTER, INTEGERS, INTEGERS)
_anneal_intervals = function("anneal_intervals", I64, POINTER, POINTER, *[INTEGERS] * 4)
_anneal_moves = function("anneal_moves", I64, POINTER, I64, I64, I64, INTEGERS, INTEGERS)
