"""The stage-pattern integer program: aligned stages, chosen as patterns, bisected on the flow.

Its size does not grow with the number of nodes, only with their kinds: milliseconds to a second
for clusters of any size. It needs no partial inference. It sees no links; what they take away shows
in the exact max flow that every placement is reported with.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.node_kinds import NodeKind, node_kinds
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import CancelToken, Progress, SearchOptions, SearchResult, StopReason
from planner.placers.best_so_far import BestSoFar
from planner.placers.pattern_search import PatternLimits, improving_stages
from planner.placers.patterns import PatternFamily, PatternPool, Rows
from planner.placers.solvers.choice import SolverName
from planner.placers.stages import placement_of_stages

NAME = "stage-patterns"
NO_SOLVER = "none"


class StagePatternPlacer:
    """Places aligned stages, every node of a stage holding the same layers."""

    def __init__(
        self, *, solver: SolverName = "highs", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._solver: SolverName = solver
        self._clock = clock

    @property
    def name(self) -> str:
        return NAME

    def search(
        self,
        problem: Problem,
        *,
        options: SearchOptions,
        start: Placement | None,
        progress: Progress,
        cancel: CancelToken,
    ) -> SearchResult:
        """The best placement of aligned stages, or `start` where that carries more.

        Pinned nodes take no part; they join the stages that are found, where their pins are.
        """
        started_s = self._clock()
        upper = knapsack_bound_tokens_per_s(problem)
        best = BestSoFar(
            problem,
            options,
            placer=NAME,
            upper_bound_tokens_per_s=upper,
            progress=progress,
            elapsed_s=lambda: self._clock() - started_s,
        )
        if start is not None:
            best.start_from(start)
        kinds = free_kinds(problem, options)
        solver = NO_SOLVER
        for found in improving_stages(
            stage_pool(kinds, max_stages=options.rules.max_hops),
            num_layers=problem.model.num_layers,
            above_tokens_per_s=0.0,
            below_tokens_per_s=upper,
            limits=PatternLimits(
                time_limit_s=options.time_limit_s,
                seed=options.seed,
                solver=self._solver,
                should_stop=cancel.is_cancelled,
                clock=self._clock,
            ),
        ):
            solver = found.solver
            best.offer(placement_of_stages(kinds, found.stages))
        reason: StopReason = "heuristic"
        if cancel.is_cancelled():
            reason = "cancelled"
        elif self._clock() - started_s >= options.time_limit_s:
            reason = "time limit"
        return SearchResult(
            placement=best.placement,
            upper_bound_tokens_per_s=upper,
            stop_reason=reason,
            solver=solver,
        )


def free_kinds(
    problem: Problem, options: SearchOptions, *, groups: Mapping[str, str] | None = None
) -> list[NodeKind]:
    """The kinds of the nodes that are not pinned."""
    kinds = node_kinds(problem, rules=options.rules, groups=groups)
    free = [
        replace(kind, names=tuple(n for n in kind.names if n not in options.rules.pinned))
        for kind in kinds
    ]
    return [kind for kind in free if kind.names]


def stage_pool(kinds: list[NodeKind], *, max_stages: int | None) -> PatternPool:
    """Patterns of all kinds; with `max_stages` one more row counts the stages."""
    rows = Rows()
    use: dict[int, float] = {}
    if max_stages is not None:
        rows = Rows(extra_limits=(float(max_stages),))
        use = {len(kinds): 1.0}
    return PatternPool(
        kinds, [PatternFamily(kinds=tuple(range(len(kinds))), use_of_rows=use)], rows
    )
