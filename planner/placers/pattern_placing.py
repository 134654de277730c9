"""Placing by stage patterns: programs one after another, and the best by exact max flow."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.placement import Placement
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.pattern_search import FoundStages, improving_stages
from planner.placers.patterns import PatternPool
from planner.placers.stop import ProgramLimits


class PatternProgram(Protocol):
    """A way to choose stages of `num_layers` layers together from a pool of patterns."""

    @property
    def pool(self) -> PatternPool: ...

    @property
    def num_layers(self) -> int: ...

    def placements(self, found: FoundStages) -> Iterator[Placement]:
        """Ways to order the stages and to give them nodes."""
        ...


def improving(
    program: PatternProgram, *, above: float, below: float, limits: ProgramLimits
) -> Iterator[FoundStages]:
    """Ever better stages that carry a flow between the two, links as the program sees them."""
    return improving_stages(
        program.pool,
        num_layers=program.num_layers,
        above_tokens_per_s=above,
        below_tokens_per_s=below,
        limits=limits,
    )


def search_by_patterns(
    board: Board, programs: Callable[[], Iterable[PatternProgram]], *, seed: int, by: str
) -> StopReason:
    """Offer the placements that the programs lead to.

    Each program begins above what is known. Pinned nodes take no part; they join the stages that
    are found, and these are laid around them.
    """
    below = knapsack_bound_tokens_per_s(board.problem)
    board.begin_around_pins(by=by)
    for program in programs():
        limits = ProgramLimits(seed=seed, solver=board.options.pattern_solver, stop=board.stop)
        for found in improving(program, above=board.tokens_per_s, below=below, limits=limits):
            board.used(found.solver)
            for placement in program.placements(found):
                board.offer_free(placement, by=by)
    return "heuristic"
