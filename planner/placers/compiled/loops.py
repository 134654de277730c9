"""Runs an annealing loop: compiled where the package was built with a C compiler, or in Python."""

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np

from planner.placers.compiled import interval_loop, move_loop, stage_loop
from planner.placers.compiled.move_loop import Ends
from planner.placers.compiled.tasks import (
    MINUS_LOGARITHMS,
    Annealed,
    IntegerArray,
    IntervalTask,
    MoveTask,
    Range,
    Schedule,
    StageTask,
)

_LIBRARY_NAME = "_loops"
_EDITION = 9  # of module.c
_I64, _REAL, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def is_compiled() -> bool:
    """Whether the loops run as machine code here."""
    return _library() is not None


def anneal_stages(
    task: StageTask, *, ranks: list[int], schedule: Schedule
) -> Annealed[float, list[int]]:
    """Anneal from the stage numbers `ranks` of every node, -1 for nodes in no stage."""
    library = _library()
    if library is None:
        return stage_loop.anneal_stages(task, ranks=ranks, schedule=schedule)
    speeds, links = _contiguous(task.speeds_NJ), _contiguous(task.links)
    limits = None if task.limits_NE is None else _contiguous(task.limits_NE)
    neighbours, best = _contiguous(task.neighbours_NK), np.array(ranks, dtype=np.int64)
    last = best.copy()
    energy: float = library.anneal_stages(
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
    library = _library()
    if library is None:
        return interval_loop.anneal_intervals(task, ranges=ranges, schedule=schedule)
    speeds, limits = _contiguous(task.speeds_NJ), _contiguous(task.limits_NE)
    firsts = np.array([first for first, _ in ranges], dtype=np.int64)
    helds = np.array([held for _, held in ranges], dtype=np.int64)
    best_firsts, best_helds = firsts.copy(), helds.copy()
    missing: int = library.anneal_intervals(
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
    library = _library()
    if library is None:
        return move_loop.anneal_moves(
            task, ranges=ranges, threshold=threshold, moves=moves, seed=seed
        )
    speeds, limits = _contiguous(task.speeds_NJ), _contiguous(task.limits_NE)
    old_firsts, old_ends = (
        np.array([ends[side] for ends in task.running], dtype=np.int64) for side in (0, 1)
    )
    firsts, ends = (np.array([ends[side] for ends in ranges], dtype=np.int64) for side in (0, 1))
    links = None if task.links is None else _contiguous(task.links)
    energy: int = library.anneal_moves(
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


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The compiled loops, or None where they were not built, or built from other sources."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(_LIBRARY_NAME + suffix)
        if path.exists():
            library = ctypes.CDLL(str(path))
            break
    else:
        return None
    if _edition(library) != _EDITION:
        return None
    library.anneal_stages.restype = _REAL
    library.anneal_stages.argtypes = [
        *(_I64, _I64, _I64, _I64, _I64, _POINTER, _POINTER, _POINTER, _POINTER, _I64, _POINTER),
        *(_I64, _I64, _REAL, _REAL, _REAL, _I64, _POINTER, _POINTER),
    ]
    library.anneal_intervals.restype = _I64
    library.anneal_intervals.argtypes = [
        *(_I64, _I64, _I64, _I64, _I64, _POINTER, _POINTER, _POINTER, _I64),
        *(_I64, _REAL, _REAL, _I64, _POINTER, _POINTER, _POINTER, _POINTER),
    ]
    library.anneal_moves.restype = _I64
    library.anneal_moves.argtypes = [
        *(_I64, _I64, _I64, _I64, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER),
        *(_I64, _I64, _I64, _I64, _I64, _I64, _POINTER, _POINTER),
    ]
    return library


def _edition(library: ctypes.CDLL) -> int:
    try:
        return ctypes.c_int64.in_dll(library, "loops_edition").value
    except ValueError:
        return 0


def _contiguous(values: IntegerArray) -> IntegerArray:
    return np.ascontiguousarray(values, dtype=np.int64)
