"""The stage-pattern integer program: aligned stages, chosen as patterns, bisected on the flow.

Its size does not grow with the number of nodes, only with their kinds: milliseconds to a second
for clusters of any size. It needs no partial inference. It sees no links; what they take away shows
in the exact max flow that every placement is reported with.
"""

import time
from collections.abc import Callable

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.node_kinds import NodeKind, node_kinds
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.max_flow import max_flow
from planner.placers.base import CancelToken, Progress, SearchOptions, SearchResult, StopReason
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
        """The best placement of aligned stages, or `start` where that carries more."""
        started_s = self._clock()
        kinds = node_kinds(problem, rules=options.rules)
        upper = knapsack_bound_tokens_per_s(problem)
        best = start
        best_flow = 0.0
        if start is not None:
            best_flow = max_flow(
                problem, start, partial_inference=options.partial_inference
            ).value_tokens_per_s
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
            placement = placement_of_stages(kinds, found.stages)
            flow = max_flow(
                problem, placement, partial_inference=options.partial_inference
            ).value_tokens_per_s
            if flow > best_flow:
                best, best_flow = placement, flow
                progress(
                    Incumbent(
                        elapsed_s=self._clock() - started_s,
                        flow_tokens_per_s=flow,
                        upper_bound_tokens_per_s=upper,
                        placer=NAME,
                        placement=placement,
                    )
                )
        reason: StopReason = "heuristic"
        if cancel.is_cancelled():
            reason = "cancelled"
        elif self._clock() - started_s >= options.time_limit_s:
            reason = "time limit"
        return SearchResult(
            placement=best, upper_bound_tokens_per_s=upper, stop_reason=reason, solver=solver
        )


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
