"""Annealing on layer ranges at a fixed flow: staggered placements, which need partial inference.

Ranges need not be aligned to stages. It sees no links: where they are ample, ranges that cover
every layer with the target flow carry it; elsewhere the exact max flow of what is found may be
less. Pinned nodes cover their layers from the start and never move.
"""

import numpy as np

from planner.domain.placement import LayerRange, Placement
from planner.placers.annealing import ALONE, Effort, Try, search_by_annealing
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.flow_tables import FlowTables
from planner.placers.loops import (
    NO_INTEGERS,
    IntegerArray,
    RangeTask,
    anneal_ranges,
    ends_of,
    placement_of,
)
from planner.placers.stop import Stop
from planner.tuning.flow import IntervalAnnealingTuning as tuned
from planner.tuning.flow import RangeAnnealingTuning

NAME = "interval-annealing"


def search_interval_annealing(board: Board, seed: int, *, effort: Effort = ALONE) -> StopReason:
    """Place ranges that overlap as they like; every try begins at the best so far."""
    return search_by_annealing(board, IntervalAnnealer(), seed=seed, by=NAME, effort=effort)


class IntervalAnnealer:
    """Anneals ranges; with `spares` 1, towards ranges that carry the flow without any one node."""

    def __init__(self, *, spares: int = 0) -> None:
        self._spares = spares

    def moves_per_s(self, tables: FlowTables) -> float:
        """Moves cost what the layers that change hands cost: the same on any number of nodes.

        But the fastest node of a layer is looked for among all nodes.
        """
        slower = 1 + self._spares * len(tables.names) // 8
        return tuned.MOVES_PER_S / max(1, int(tables.limits_NE.max(initial=1)) // 8) / slower

    def attempt(self, tables: FlowTables, aim: Try, *, chunk_moves: int, stop: Stop) -> Placement:
        """From the ranges of the best so far; between chunks of moves the clock is heard."""
        names = [*tables.names, *(pin.name for pin in tables.pinned)]
        pins = {
            pin.name: LayerRange(first=pin.first, end=pin.first + pin.held) for pin in tables.pinned
        }
        ranges = ends_of(names, pins if aim.best is None else {**aim.best.layers, **pins})
        target = tables.target(aim.target_tokens_per_s)
        task = RangeTask(
            num_layers=tables.num_layers,
            target=target,
            speeds_NJ=_with_pinned_speeds(tables),
            limits_NE=np.pad(tables.limits_NE, ((0, len(tables.pinned)), (0, 0))),
            running_N2=np.array(ranges, dtype=np.int64),
            budget_layers=len(names) * tables.num_layers,
            penalty=0,
            charge=int(target * RangeAnnealingTuning.CHARGE_SHARE),
            spares=self._spares,
            links=NO_INTEGERS,
        )
        hot = int(target * tuned.HOTNESS[aim.number % len(tuned.HOTNESS)])
        for done in range(0, aim.moves, chunk_moves):
            moves = min(chunk_moves, aim.moves - done)
            missing, ranges = anneal_ranges(
                task,
                ranges=ranges,
                hot=hot * (aim.moves - done) // aim.moves,
                cold=hot * (aim.moves - done - moves) // aim.moves,
                moves=moves,
                seed=aim.seed * 1_000_003 + done // chunk_moves,
            )
            if missing <= 0 or stop.is_over():
                break
        return placement_of(names, ranges)


def _with_pinned_speeds(tables: FlowTables) -> IntegerArray:
    """A row for every free node, then one for every pinned one."""
    longest = max([tables.speeds_NJ.shape[1] - 1, *(pin.held for pin in tables.pinned)])
    speeds = np.zeros((len(tables.names) + len(tables.pinned), longest + 1), dtype=np.int64)
    speeds[: len(tables.names), : tables.speeds_NJ.shape[1]] = tables.speeds_NJ
    for row, pin in enumerate(tables.pinned, start=len(tables.names)):
        speeds[row, pin.held] = pin.speed
    return speeds
