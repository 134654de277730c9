"""Annealing on layer ranges at a fixed flow: staggered placements, which need partial inference.

Ranges need not be aligned to stages. It sees no links: where they are ample, ranges that cover
every layer with the target flow carry it; elsewhere the exact max flow of what is found may be
less. Pinned nodes cover their layers from the start and never move.
"""

import numpy as np

from planner.chance import Schedule
from planner.domain.placement import LayerRange, Placement
from planner.placers.annealing import ALONE, Effort, Try, anneal_in_chunks, search_by_annealing
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.flow_tables import FlowTables
from planner.placers.loops import Annealed, IntegerArray, IntervalTask, Range, anneal_intervals
from planner.placers.stop import Stop

NAME = "interval-annealing"
# In flows on one layer. Measured on the published 42-node cluster and on 100 generated nodes.
_HOT, _COLD = 1.0, 0.001
_MOVES_PER_S = 3e6


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
        return _MOVES_PER_S / max(1, int(tables.limits_NE.max(initial=1)) // 8) / slower

    def attempt(self, tables: FlowTables, aim: Try, *, chunk_moves: int, stop: Stop) -> Placement:
        """From the ranges of the best so far."""
        task = IntervalTask(
            num_layers=tables.num_layers,
            target=tables.target(aim.target_tokens_per_s),
            speeds_NJ=_with_pinned_speeds(tables),
            limits_NE=np.pad(tables.limits_NE, ((0, len(tables.pinned)), (0, 0))),
            spares=self._spares,
        )

        def loop(ranges: list[Range], schedule: Schedule) -> Annealed[int, list[Range]]:
            return anneal_intervals(task, ranges=ranges, schedule=schedule)

        annealed = anneal_in_chunks(
            loop,
            start=_ranges_of(tables, aim.best),
            schedule=Schedule(moves=aim.moves, hot=_HOT, cold=_COLD, seed=aim.seed),
            chunk_moves=chunk_moves,
            stop=stop,
        )
        return _placement_of(tables, annealed.best)


def _ranges_of(tables: FlowTables, placement: Placement | None) -> list[Range]:
    layers = {} if placement is None else placement.layers
    free = [
        (layers[name].first, len(layers[name])) if name in layers else (0, 0)
        for name in tables.names
    ]
    return free + [(pin.first, pin.held) for pin in tables.pinned]


def _with_pinned_speeds(tables: FlowTables) -> IntegerArray:
    """A row for every free node, then one for every pinned one."""
    longest = max([tables.speeds_NJ.shape[1] - 1, *(pin.held for pin in tables.pinned)])
    speeds = np.zeros((len(tables.names) + len(tables.pinned), longest + 1), dtype=np.int64)
    speeds[: len(tables.names), : tables.speeds_NJ.shape[1]] = tables.speeds_NJ
    for row, pin in enumerate(tables.pinned, start=len(tables.names)):
        speeds[row, pin.held] = pin.speed
    return speeds


def _placement_of(tables: FlowTables, ranges: list[Range]) -> Placement:
    return Placement(
        layers={
            name: LayerRange(first=first, end=first + held)
            for name, (first, held) in zip(
                (*tables.names, *(pin.name for pin in tables.pinned)), ranges, strict=True
            )
            if held > 0
        }
    )
