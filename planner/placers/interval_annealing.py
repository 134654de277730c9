"""Annealing on layer ranges at a fixed flow: staggered placements, which need partial inference.

Ranges need not be aligned to stages. It sees no links: where they are ample, ranges that cover
every layer with the target flow carry it; elsewhere the exact max flow of what is found may be
less. Pinned nodes cover their layers from the start and never move.
"""

from planner.domain.placement import Placement
from planner.placers.annealing import ALONE, Effort, Try, search_by_annealing
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.flow_tables import FlowTables
from planner.placers.range_annealing import RangeAnnealing
from planner.placers.stop import Stop
from planner.tuning.flow import IntervalAnnealingTuning as tuned

NAME = "interval-annealing"


def search_interval_annealing(
    board: Board, seed: int, *, effort: Effort = ALONE, spares: int = 0
) -> StopReason:
    """Place ranges that overlap as they like; every try begins at the best so far.

    With `spares` 1 they cover every layer without the fastest node that holds it too.
    """
    annealer = _IntervalAnnealer(board, spares)
    return search_by_annealing(board, annealer, seed=seed, by=NAME, effort=effort)


class _IntervalAnnealer:
    def __init__(self, board: Board, spares: int) -> None:
        rules = board.options.rules
        self._pinned = Placement(layers=dict(rules.pinned))
        self._annealing = RangeAnnealing(
            board.problem, self._pinned, rules=rules, links=None, spares=spares
        )

    def moves_per_s(self, tables: FlowTables) -> float:
        """Moves cost what the layers that change hands cost: the same on any number of nodes."""
        return tuned.MOVES_PER_S / max(1, int(tables.limits_NE.max(initial=1)) // 8)

    def attempt(self, tables: FlowTables, aim: Try, *, chunk_moves: int, stop: Stop) -> Placement:
        """One try from the ranges of the best placement so far."""
        return self._annealing.anneal(
            self._pinned if aim.best is None else aim.best,
            target_tokens_per_s=aim.target_tokens_per_s,
            hotness=tuned.HOTNESS[aim.number % len(tuned.HOTNESS)],
            moves=aim.moves,
            seed=aim.seed,
            chunk_moves=chunk_moves,
            stop=stop,
        )
