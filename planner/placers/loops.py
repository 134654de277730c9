"""Calls the annealing loops, which are in C."""

import numpy as np

from planner.chance import MINUS_LOGARITHMS
from planner.native import I64, INTEGERS, POINTER, REAL, REALS, function
from planner.placers.loop_tasks import (
    Annealed,
    Ends,
    IntegerArray,
    IntervalTask,
    MoveTask,
    Range,
    Schedule,
    StageTask,
)


def anneal_stages(
    task: StageTask, *, ranks: list[int], schedule: Schedule
) -> Annealed[float, list[int]]:
    """Anneal from the stage numbers `ranks` of every node, -1 for nodes in no stage."""
    speeds, links = _contiguous(task.speeds_NJ), _contiguous(task.links)
    limits = None if task.limits_NE is None else _contiguous(task.limits_NE)
    neighbours, best = _contiguous(task.neighbours_NK), np.array(ranks, dtype=np.int64)
    last = best.copy()
    energy: float = _anneal_stages(
        len(speeds),
        task.num_layers,
        task.target,
        task.max_stages,
        speeds.shape[1],
        speeds,
        links,
        None if limits is None else limits.ctypes.data,
        neighbours,
        neighbours.shape[1],
        MINUS_LOGARITHMS,
        len(MINUS_LOGARITHMS),
        schedule.moves,
        schedule.hot,
        schedule.cooling,
        task.weight,
        schedule.first_random,
        last,
        best,
    )
    if energy < 0:
        raise MemoryError("no memory for annealing stages")
    return Annealed(energy=energy, best=best.tolist(), last=last.tolist())


def anneal_intervals(
    task: IntervalTask, *, ranges: list[Range], schedule: Schedule
) -> Annealed[int, list[Range]]:
    """Anneal from `ranges`, one for every node."""
    speeds, limits = _contiguous(task.speeds_NJ), _contiguous(task.limits_NE)
    firsts = np.array([first for first, _ in ranges], dtype=np.int64)
    helds = np.array([held for _, held in ranges], dtype=np.int64)
    best_firsts, best_helds = firsts.copy(), helds.copy()
    missing: int = _anneal_intervals(
        len(speeds),
        task.num_layers,
        task.target,
        task.spares,
        speeds.shape[1],
        speeds,
        limits,
        MINUS_LOGARITHMS,
        len(MINUS_LOGARITHMS),
        schedule.moves,
        schedule.hot,
        schedule.cooling,
        schedule.first_random,
        firsts,
        helds,
        best_firsts,
        best_helds,
    )
    if missing < 0:
        raise MemoryError("no memory for annealing intervals")
    return Annealed(
        energy=missing,
        best=list(zip(best_firsts.tolist(), best_helds.tolist(), strict=True)),
        last=list(zip(firsts.tolist(), helds.tolist(), strict=True)),
    )


def anneal_moves(
    task: MoveTask, *, ranges: list[Ends], threshold: int, moves: int, seed: int
) -> tuple[int, list[Ends]]:
    """The energy reached, 0 ending the search, and the ranges then; starts from `ranges`.

    `seed` is in 1 .. 2**31 - 2.
    """
    speeds, limits = _contiguous(task.speeds_NJ), _contiguous(task.limits_NE)
    old_firsts, old_ends = (
        np.array([ends[side] for ends in task.running], dtype=np.int64) for side in (0, 1)
    )
    firsts, ends = (np.array([ends[side] for ends in ranges], dtype=np.int64) for side in (0, 1))
    links = None if task.links is None else _contiguous(task.links)
    energy: int = _anneal_moves(
        len(speeds),
        task.num_layers,
        task.target,
        speeds.shape[1],
        speeds,
        limits,
        None if links is None else links.ctypes.data,
        old_firsts,
        old_ends,
        task.budget_layers,
        task.penalty,
        task.charge,
        threshold,
        moves,
        seed,
        firsts,
        ends,
    )
    if energy < 0:
        raise MemoryError("no memory for annealing moves")
    return energy, list(zip(firsts.tolist(), ends.tolist(), strict=True))


def _contiguous(values: IntegerArray) -> IntegerArray:
    return np.ascontiguousarray(values, dtype=np.int64)


_anneal_stages = function(
    "anneal_stages",
    REAL,
    *(I64, I64, I64, I64, I64, INTEGERS, INTEGERS, POINTER, INTEGERS, I64, REALS),
    *(I64, I64, REAL, REAL, REAL, I64, INTEGERS, INTEGERS),
)
_anneal_intervals = function(
    "anneal_intervals",
    I64,
    *(I64, I64, I64, I64, I64, INTEGERS, INTEGERS, REALS, I64),
    *(I64, REAL, REAL, I64, INTEGERS, INTEGERS, INTEGERS, INTEGERS),
)
_anneal_moves = function(
    "anneal_moves",
    I64,
    *(I64, I64, I64, I64, INTEGERS, INTEGERS, POINTER, INTEGERS, INTEGERS),
    *(I64, I64, I64, I64, I64, I64, INTEGERS, INTEGERS),
)
