"""Calls the annealing loops, which are in C.

That of moves is in Python too, for replanning without a C compiler; the other two gain a few per
cent of flow and are left out there, where they would make 6 000 moves/s instead of 1.7 M.
"""

import ctypes
import functools
from pathlib import Path

import numpy as np

from planner.chance import MINUS_LOGARITHMS
from planner.native import I64, POINTER, REAL, library
from planner.placers.compiled import move_loop
from planner.placers.compiled.move_loop import Ends
from planner.placers.compiled.tasks import (
    Annealed,
    IntegerArray,
    IntervalTask,
    MoveTask,
    Range,
    Schedule,
    StageTask,
)


def is_compiled() -> bool:
    """Whether the loops run as machine code here."""
    return _library() is not None


def anneal_stages(
    task: StageTask, *, ranks: list[int], schedule: Schedule
) -> Annealed[float, list[int]]:
    """Anneal from the stage numbers `ranks` of every node, -1 for nodes in no stage."""
    speeds, links = _contiguous(task.speeds_NJ), _contiguous(task.links)
    limits = None if task.limits_NE is None else _contiguous(task.limits_NE)
    neighbours, best = _contiguous(task.neighbours_NK), np.array(ranks, dtype=np.int64)
    last = best.copy()
    energy: float = _compiled().anneal_stages(
        len(speeds),
        task.num_layers,
        task.target,
        task.max_stages,
        speeds.shape[1],
        speeds.ctypes.data,
        links.ctypes.data,
        None if limits is None else limits.ctypes.data,
        neighbours.ctypes.data,
        neighbours.shape[1],
        MINUS_LOGARITHMS.ctypes.data,
        len(MINUS_LOGARITHMS),
        schedule.moves,
        schedule.hot,
        schedule.cooling,
        task.weight,
        schedule.first_random,
        last.ctypes.data,
        best.ctypes.data,
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
    missing: int = _compiled().anneal_intervals(
        len(speeds),
        task.num_layers,
        task.target,
        task.spares,
        speeds.shape[1],
        speeds.ctypes.data,
        limits.ctypes.data,
        MINUS_LOGARITHMS.ctypes.data,
        len(MINUS_LOGARITHMS),
        schedule.moves,
        schedule.hot,
        schedule.cooling,
        schedule.first_random,
        firsts.ctypes.data,
        helds.ctypes.data,
        best_firsts.ctypes.data,
        best_helds.ctypes.data,
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
    """The energy reached, and the ranges then; starts from `ranges`."""
    compiled = _library()
    if compiled is None:
        return move_loop.anneal_moves(
            task, ranges=ranges, threshold=threshold, moves=moves, seed=seed
        )
    speeds, limits = _contiguous(task.speeds_NJ), _contiguous(task.limits_NE)
    old_firsts, old_ends = (
        np.array([ends[side] for ends in task.running], dtype=np.int64) for side in (0, 1)
    )
    firsts, ends = (np.array([ends[side] for ends in ranges], dtype=np.int64) for side in (0, 1))
    links = None if task.links is None else _contiguous(task.links)
    energy: int = compiled.anneal_moves(
        len(speeds),
        task.num_layers,
        task.target,
        speeds.shape[1],
        speeds.ctypes.data,
        limits.ctypes.data,
        None if links is None else links.ctypes.data,
        old_firsts.ctypes.data,
        old_ends.ctypes.data,
        task.budget_layers,
        task.penalty,
        task.charge,
        threshold,
        moves,
        seed,
        firsts.ctypes.data,
        ends.ctypes.data,
    )
    if energy < 0:
        raise MemoryError("no memory for annealing moves")
    return energy, list(zip(firsts.tolist(), ends.tolist(), strict=True))


def _compiled() -> ctypes.CDLL:
    found = _library()
    if found is None:
        raise RuntimeError("the loops are not compiled here; ask is_compiled() first")
    return found


@functools.cache
def _library() -> ctypes.CDLL | None:
    return library(
        Path(__file__).parent,
        "_loops",
        edition=("loops_edition", 9),
        functions={
            "anneal_stages": (
                REAL,
                [
                    *(I64, I64, I64, I64, I64, POINTER, POINTER, POINTER, POINTER, I64, POINTER),
                    *(I64, I64, REAL, REAL, REAL, I64, POINTER, POINTER),
                ],
            ),
            "anneal_intervals": (
                I64,
                [
                    *(I64, I64, I64, I64, I64, POINTER, POINTER, POINTER, I64),
                    *(I64, REAL, REAL, I64, POINTER, POINTER, POINTER, POINTER),
                ],
            ),
            "anneal_moves": (
                I64,
                [
                    *(I64, I64, I64, I64, POINTER, POINTER, POINTER, POINTER, POINTER),
                    *(I64, I64, I64, I64, I64, I64, POINTER, POINTER),
                ],
            ),
        },
    )


def _contiguous(values: IntegerArray) -> IntegerArray:
    return np.ascontiguousarray(values, dtype=np.int64)
