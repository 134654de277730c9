"""Placing by stage patterns: programs one after another, and the best by exact max flow."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import CancelToken, Progress, SearchOptions, SearchResult, StopReason
from planner.placers.best_so_far import BestSoFar
from planner.placers.pattern_search import FoundStages, PatternLimits
from planner.placers.solvers.base import SolverName

NO_SOLVER = "none"


class PatternProgram(Protocol):
    """A way to choose stages from patterns."""

    def improving(
        self, *, above: float, below: float, limits: PatternLimits
    ) -> Iterator[FoundStages]:
        """Ever better stages that carry a flow between the two, links as the program sees them."""
        ...

    def placements(self, found: FoundStages) -> Iterator[Placement]:
        """Ways to order the stages and to give them nodes."""
        ...


def search_by_patterns(
    problem: Problem,
    programs: Callable[[], Iterable[PatternProgram]],
    *,
    placer: str,
    solver: SolverName,
    options: SearchOptions,
    start: Placement | None,
    progress: Progress,
    cancel: CancelToken,
    clock: Callable[[], float],
) -> SearchResult:
    """The best placement that any program leads to, or `start` where that carries more.

    Each program begins above what is known. Pinned nodes take no part; they join the stages that
    are found, and these are laid around them.
    """
    started_s = clock()
    upper = knapsack_bound_tokens_per_s(problem)
    best = BestSoFar(
        problem,
        options,
        placer=placer,
        upper_bound_tokens_per_s=upper,
        progress=progress,
        elapsed_s=lambda: clock() - started_s,
    )
    if start is not None:
        best.start_from(start)
    best.begin_around_pins()
    used_solver = NO_SOLVER
    for program in programs():
        limits = PatternLimits(
            time_limit_s=options.time_limit_s - (clock() - started_s),
            seed=options.seed,
            solver=solver,
            should_stop=cancel.is_cancelled,
            clock=clock,
        )
        for found in program.improving(above=best.tokens_per_s, below=upper, limits=limits):
            used_solver = found.solver
            for placement in program.placements(found):
                best.offer(placement)
    reason: StopReason = "heuristic"
    if cancel.is_cancelled():
        reason = "cancelled"
    elif clock() - started_s >= options.time_limit_s:
        reason = "time limit"
    return SearchResult(
        placement=best.placement,
        upper_bound_tokens_per_s=upper,
        stop_reason=reason,
        solver=used_solver,
    )
