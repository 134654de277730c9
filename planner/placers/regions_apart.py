"""Every region serves alone: for links, or shared bandwidth, that let next to nothing through.

Each group of nodes that can hold the model gets the stages that the pattern program finds for it;
the others stay idle. Flow may still go from one group to another where their stages meet.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.link_groups import LinkTable, link_groups, names_by_group
from planner.capacity import ModelDoesNotFit, check_cluster_can_hold_model
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.base import CancelToken, Progress, SearchOptions, SearchResult, StopReason
from planner.placers.best_so_far import BestSoFar
from planner.placers.pattern_placing import NO_SOLVER
from planner.placers.solvers.base import SolverName
from planner.placers.stage_patterns import StagePatternPlacer

NAME = "regions-apart"


class RegionsApartPlacer:
    """Places each group's nodes as if the others were not there."""

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
        """All groups' placements together, or `start` where that carries more.

        Finds nothing where no group, or only the whole cluster, can hold the model.
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
        layers: dict[str, LayerRange] = {}
        solver = NO_SOLVER
        for alone in _groups_that_hold_the_model(problem):
            left_s = options.time_limit_s - (self._clock() - started_s)
            if left_s <= 0 or cancel.is_cancelled():
                break
            names = {node.name for node in alone.cluster.nodes}
            pinned = {name: held for name, held in options.rules.pinned.items() if name in names}
            found = StagePatternPlacer(solver=self._solver, clock=self._clock).search(
                alone,
                options=replace(
                    options, time_limit_s=left_s, rules=replace(options.rules, pinned=pinned)
                ),
                start=None,
                progress=lambda _: None,
                cancel=cancel,
            )
            if found.placement is not None:
                solver = found.solver
                layers |= found.placement.layers
        if layers:
            best.offer(Placement(layers=layers))
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


def _groups_that_hold_the_model(problem: Problem) -> list[Problem]:
    """The problem of each group alone, where there is more than one."""
    members = names_by_group(link_groups(problem, LinkTable(problem)))
    everyone = {node.name for node in problem.cluster.nodes}
    holding = []
    for group in sorted(members) if len(members) > 1 else ():
        others = everyone - set(members[group])
        alone = replace(problem, cluster=problem.cluster.without(others))
        try:
            check_cluster_can_hold_model(alone)
        except ModelDoesNotFit:
            continue
        holding.append(alone)
    return holding
