"""The MILP placer: Helix §4.4 searched with pruning, warm start, bound and early stop (§4.5).

Nothing that a solver says about flow is believed: each placement it finds is measured by max flow
on all links, and only what that improves counts.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from planner.bounds import upper_bound_tokens_per_s
from planner.capacity import check_cluster_can_hold_model
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.max_flow import max_flow
from planner.placers.base import (
    CancelToken,
    InvalidOptions,
    Progress,
    SearchOptions,
    SearchResult,
    StopReason,
)
from planner.placers.milp_model import PlacementModel, build_placement_model
from planner.placers.pruning import Edge, node_links, prune_links
from planner.placers.solvers.base import SolveLimits, StopCause
from planner.placers.solvers.choice import SolverName, solve

NAME = "milp"
_BOUND_STEP_RELATIVE = 1e-4
_FLOW_STEP_RELATIVE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpOptions:
    """What only the MILP needs to know.

    `prune_degree` is the average number of outgoing links between nodes that each keeps (None: no
    pruning). The search ends when the flow is within `relative_gap` (0 to 1) of a proven bound: the
    solver's, that of `planner.bounds`, or a tighter `known_upper_bound_tokens_per_s`.
    """

    solver: SolverName = "auto"
    prune_degree: float | None = None
    relative_gap: float = 1e-4
    known_upper_bound_tokens_per_s: float = math.inf

    def __post_init__(self) -> None:
        if self.solver not in get_args(SolverName):
            known = ", ".join(get_args(SolverName))
            raise InvalidOptions(f"solver is {self.solver!r}; use one of: {known}")
        if self.prune_degree is not None and not 0 < self.prune_degree < math.inf:
            raise InvalidOptions(
                f"prune_degree is {self.prune_degree}; it must be above 0, or None for no pruning"
            )
        if not 0 <= self.relative_gap < 1:
            raise InvalidOptions(
                f"relative_gap is {self.relative_gap}; it must be 0 or more and below 1"
            )
        if not self.known_upper_bound_tokens_per_s > 0:
            raise InvalidOptions(
                f"known_upper_bound_tokens_per_s is {self.known_upper_bound_tokens_per_s}; "
                "it must be above 0, infinite if nothing is known"
            )


class MilpPlacer:
    """Searches all placements; proves a bound when it may use all links."""

    def __init__(
        self, *, options: MilpOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
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
        """The best placement found, never worse than `start`; None if none carries any flow.

        With pruned links an exhausted search proves nothing about all links: it ends as
        "heuristic" and its bound is the known one. Raises InvalidPlacement for a start that does
        not fit the problem, ModelDoesNotFit, and SolverUnavailable when Gurobi was demanded and
        cannot run the model.
        """
        started_s = self._clock()
        check_cluster_can_hold_model(problem)
        start_flow = (
            max_flow(problem, start, partial_inference=options.partial_inference)
            if start is not None
            else None
        )
        known_bound = min(
            self._options.known_upper_bound_tokens_per_s, upper_bound_tokens_per_s(problem)
        )
        all_links = node_links(problem)
        links = self._links_to_search(problem, all_links, start_flow=start_flow, seed=options.seed)
        built = build_placement_model(
            problem,
            node_links=links,
            partial_inference=options.partial_inference,
            upper_bound_tokens_per_s=known_bound,
        )
        watch = _SearchWatch(
            built=built,
            options=options,
            known_bound=known_bound,
            relative_gap=self._options.relative_gap,
            solver_bounds_are_proofs=len(links) == len(all_links),
            progress=progress,
            cancel=cancel,
            clock=self._clock,
            started_s=started_s,
        )
        if start is not None and start_flow is not None and start_flow.value_tokens_per_s > 0:
            watch.begin_at(start, start_flow.value_tokens_per_s)
        if watch.should_stop():
            return watch.result(cause="stopped", solver=f"{self._options.solver} (not needed)")
        solved = solve(
            self._options.solver,
            built.model,
            start=built.values_of(start, start_flow) if start is not None and start_flow else None,
            limits=SolveLimits(
                time_limit_s=options.time_limit_s - (self._clock() - started_s),
                relative_gap=self._options.relative_gap,
                seed=options.seed,
            ),
            watcher=watch,
        )
        return watch.result(cause=solved.outcome.cause, solver=solved.solver)

    def _links_to_search(
        self, problem: Problem, all_links: tuple[Edge, ...], *, start_flow: Flow | None, seed: int
    ) -> tuple[Edge, ...]:
        if self._options.prune_degree is None:
            return all_links
        used = {
            (edge.source, edge.target)
            for edge in (start_flow.edges if start_flow is not None else ())
            if edge.flow_tokens_per_s > 0
        }
        return prune_links(
            problem,
            all_links,
            average_degree=self._options.prune_degree,
            keep=used,
            seed=seed,
        )


class _SearchWatch:
    """What the search knows while the solver runs: best placement, its exact flow, the bound."""

    def __init__(
        self,
        *,
        built: PlacementModel,
        options: SearchOptions,
        known_bound: float,
        relative_gap: float,
        solver_bounds_are_proofs: bool,
        progress: Progress,
        cancel: CancelToken,
        clock: Callable[[], float],
        started_s: float,
    ) -> None:
        self._built = built
        self._options = options
        self._known_bound = known_bound
        self._sufficient_share = 1.0 - relative_gap
        self._solver_bounds_are_proofs = solver_bounds_are_proofs
        self._progress = progress
        self._cancel = cancel
        self._clock = clock
        self._started_s = started_s
        self._best: Placement | None = None
        self._best_flow = 0.0
        self._bound = known_bound
        self._last_measured: Placement | None = None
        self._stop_reason: StopReason | None = None

    def begin_at(self, placement: Placement, flow_tokens_per_s: float) -> None:
        """Take the warm start as best so far; whoever found it has reported it."""
        self._best = placement
        self._best_flow = flow_tokens_per_s

    def on_solution(self, values: Sequence[float]) -> None:
        placement = self._built.placement_of(values)
        if placement == self._last_measured:
            return
        self._last_measured = placement
        flow = max_flow(
            self._built.problem, placement, partial_inference=self._options.partial_inference
        ).value_tokens_per_s
        if flow > self._best_flow * (1 + _FLOW_STEP_RELATIVE):
            self._best = placement
            self._best_flow = flow
            self._report()

    def on_bound(self, upper_bound: float) -> None:
        if not self._solver_bounds_are_proofs:
            return
        bound = upper_bound * self._built.flow_unit_tokens_per_s
        if bound < self._bound * (1 - _BOUND_STEP_RELATIVE):
            self._bound = bound
            self._report()

    def should_stop(self) -> bool:
        """Whether cancelled, close enough to a bound, or out of time; once True, always."""
        if self._stop_reason is None:
            self._stop_reason = self._reason_to_stop()
        return self._stop_reason is not None

    def result(self, *, cause: StopCause, solver: str) -> SearchResult:
        return SearchResult(
            placement=self._best,
            upper_bound_tokens_per_s=self._bound_above_best(),
            stop_reason=self._stop_reason or self._reason_of(cause),
            solver=solver,
        )

    def _reason_to_stop(self) -> StopReason | None:
        if self._cancel.is_cancelled():
            return "cancelled"
        if self._best_flow >= self._sufficient_share * self._known_bound:
            return "bound reached"
        if self._best_flow >= self._sufficient_share * self._bound:
            return "optimal"
        if self._clock() - self._started_s >= self._options.time_limit_s:
            return "time limit"
        return None

    def _reason_of(self, cause: StopCause) -> StopReason:
        if cause == "optimal":
            return "optimal" if self._solver_bounds_are_proofs else "heuristic"
        return "time limit"

    def _report(self) -> None:
        if self._best is None:
            return
        self._progress(
            Incumbent(
                elapsed_s=self._clock() - self._started_s,
                flow_tokens_per_s=self._best_flow,
                upper_bound_tokens_per_s=self._bound_above_best(),
                placer=NAME,
                placement=self._best,
            )
        )

    def _bound_above_best(self) -> float:
        """A solver's bound holds to its own tolerance only; an exact flow above it raises it."""
        return max(self._bound, self._best_flow)
