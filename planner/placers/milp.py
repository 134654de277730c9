"""The MILP placer: Helix §4.4 searched with pruning, warm start, bound and early stop (§4.5).

With partial inference allowed it searches twice, as the paper's evaluation does (§6.1): first
without it, where the model has half the variables and solvers find good placements soon, then as
asked from the best so far. What needs no partial inference may be used with it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from planner.bounds import upper_bound_tokens_per_s
from planner.capacity import check_cluster_can_hold_model
from planner.domain.flow import Flow
from planner.domain.placement import Placement
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
from planner.placers.milp_model import Edge, build_placement_model
from planner.placers.milp_search import MilpSearch, StageWatch
from planner.placers.pruning import node_links, prune_links
from planner.placers.solvers.base import SolveLimits, StopCause
from planner.placers.solvers.choice import SolverName, solve

NAME = "milp"
NO_SOLVER = "none"
_FIRST_STAGE_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One model to solve: which connections it allows, and how long it may take."""

    partial_inference: bool
    is_last: bool
    ends_with_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _StageEnd:
    """How a stage ended: by its solver's cause, and whether its model was the whole problem."""

    cause: StopCause
    solver: str
    was_whole_problem: bool


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

        A bound over fewer links is no bound: with pruned links an exhausted search ends as
        "heuristic", and the bound is the known one. Raises InvalidPlacement for a start that does
        not fit the problem, ModelDoesNotFit, and SolverUnavailable when Gurobi was demanded and
        cannot run the model.
        """
        check_cluster_can_hold_model(problem)
        known_bound = min(
            self._options.known_upper_bound_tokens_per_s, upper_bound_tokens_per_s(problem)
        )
        search = MilpSearch(
            problem=problem,
            options=options,
            known_bound_tokens_per_s=known_bound,
            relative_gap=self._options.relative_gap,
            placer_name=self.name,
            progress=progress,
            cancel=cancel,
            clock=self._clock,
        )
        if start is not None:
            search.begin_at(start)
        ends: list[_StageEnd] = []
        for stage in _stages(options):
            if search.should_stop():
                break
            ends.append(
                self._run_stage(
                    stage, problem, search=search, known_bound=known_bound, seed=options.seed
                )
            )
        return search.result(reason_if_not_stopped=_reason(ends), solver=_solver_names(ends))

    def _run_stage(
        self,
        stage: _Stage,
        problem: Problem,
        *,
        search: MilpSearch,
        known_bound: float,
        seed: int,
    ) -> _StageEnd:
        all_links = node_links(problem)
        start_flow = (
            max_flow(problem, search.best, partial_inference=stage.partial_inference)
            if search.best is not None
            else None
        )
        links = all_links
        if self._options.prune_degree is not None:
            links = prune_links(
                problem,
                all_links,
                average_degree=self._options.prune_degree,
                keep=_used_edges(start_flow),
                seed=seed,
            )
        built = build_placement_model(
            problem,
            node_links=links,
            partial_inference=stage.partial_inference,
            upper_bound_tokens_per_s=known_bound,
        )
        is_whole_problem = stage.is_last and len(links) == len(all_links)
        solved = solve(
            self._options.solver,
            built.model,
            start=(
                built.values_of(search.best, start_flow)
                if search.best is not None and start_flow is not None
                else None
            ),
            limits=SolveLimits(
                time_limit_s=search.left_s - stage.ends_with_s,
                relative_gap=self._options.relative_gap,
                seed=seed,
            ),
            watcher=StageWatch(
                search,
                built=built,
                proves_bounds=is_whole_problem,
                ends_with_s=stage.ends_with_s,
            ),
        )
        return _StageEnd(
            cause=solved.outcome.cause, solver=solved.solver, was_whole_problem=is_whole_problem
        )


def _stages(options: SearchOptions) -> list[_Stage]:
    as_asked = _Stage(partial_inference=options.partial_inference, is_last=True, ends_with_s=0.0)
    if not options.partial_inference:
        return [as_asked]
    without = _Stage(
        partial_inference=False,
        is_last=False,
        ends_with_s=(1 - _FIRST_STAGE_SHARE) * options.time_limit_s,
    )
    return [without, as_asked]


def _used_edges(flow: Flow | None) -> frozenset[Edge]:
    """The links that the warm start's flow needs; pruning them would void it."""
    if flow is None:
        return frozenset()
    return frozenset(
        (edge.source, edge.target) for edge in flow.edges if edge.flow_tokens_per_s > 0
    )


def _reason(ends: list[_StageEnd]) -> StopReason:
    """Why a search ended whose last solver ended by itself."""
    if not ends or ends[-1].cause != "optimal":
        return "time limit"
    return "optimal" if ends[-1].was_whole_problem else "heuristic"


def _solver_names(ends: list[_StageEnd]) -> str:
    """Each solver once, in the order of the stages."""
    names = list(dict.fromkeys(end.solver for end in ends))
    return ", then ".join(names) if names else NO_SOLVER
