"""The MILP placer: Helix §4.4 searched with pruning, warm start, bound and early stop (§4.5).

It searches in stages, each from the best so far, as the paper's evaluation does with and without
partial inference and pruning (§6.1): first a few small models without partial inference and with
links pruned by chance, in which solvers find good placements soon, then the model as asked. What
needs no partial inference and few links may be used with both.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from planner.bounds import upper_bound_tokens_per_s
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import check_rules, restricted_problem
from planner.max_flow import max_flow
from planner.placers.base import (
    CancelToken,
    PlacerOptions,
    Progress,
    SearchOptions,
    SearchResult,
    StopReason,
)
from planner.placers.milp_model import build_placement_model
from planner.placers.milp_search import MilpSearch, StageWatch
from planner.placers.milp_variables import Edge
from planner.placers.pruning import node_links, prune_links
from planner.placers.solvers.base import SolveLimits, StopCause
from planner.placers.solvers.choice import solve

NAME = "milp"
NO_SOLVER = "none"
_SMALL_STAGES = 3
_SMALL_STAGES_SHARE = 0.5
# Measured on the published clusters: with 8 a 42-node model fits Gurobi's free licence; 5 and 12
# found less in the same time.
_SMALL_STAGE_DEGREE = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One model to solve; it ends when `ends_with_s` of the search's time are left."""

    partial_inference: bool
    prune_degree: float | None
    seed: int
    ends_with_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The connections a model allows; two stages may come to the same."""

    partial_inference: bool
    links: tuple[Edge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StageEnd:
    """What a solver did with a scope."""

    scope: _Scope
    cause: StopCause
    solver: str


class MilpPlacer:
    """Searches all placements; proves a bound when it may use all links."""

    def __init__(
        self, *, options: PlacerOptions, clock: Callable[[], float] = time.monotonic
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
        not fit the problem under the rules, ModelDoesNotFit and InvalidRules.
        """
        check_rules(problem, options.rules)
        problem = restricted_problem(problem, options.rules)
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
        whole = _Scope(partial_inference=options.partial_inference, links=node_links(problem))
        ends: list[_StageEnd] = []
        for stage in _stages(options, prune_degree=self._options.prune_degree):
            exhausted = {end.scope for end in ends if end.cause == "optimal"}
            if whole in exhausted or search.should_stop():
                break
            start_flow = _flow_of_best(problem, search, stage=stage, rules=options.rules)
            scope = _scope(problem, whole.links, stage=stage, start_flow=start_flow)
            if scope in exhausted:
                continue
            ends.append(
                self._solve_scope(
                    problem,
                    scope,
                    stage=stage,
                    search=search,
                    start_flow=start_flow,
                    known_bound=known_bound,
                    proves_bounds=scope == whole,
                    rules=options.rules,
                )
            )
        return search.result(
            reason_if_not_stopped=_reason(ends, whole=whole), solver=_solver_names(ends)
        )

    def _solve_scope(
        self,
        problem: Problem,
        scope: _Scope,
        *,
        stage: _Stage,
        search: MilpSearch,
        start_flow: Flow | None,
        known_bound: float,
        proves_bounds: bool,
        rules: PlacementRules,
    ) -> _StageEnd:
        built = build_placement_model(
            problem,
            node_links=scope.links,
            partial_inference=scope.partial_inference,
            upper_bound_tokens_per_s=known_bound,
            rules=rules,
        )
        start = None
        if search.best is not None and start_flow is not None:
            start = built.values_of(search.best, start_flow)
        solved = solve(
            self._options.solver,
            built.model,
            start=start,
            limits=SolveLimits(
                time_limit_s=search.left_s - stage.ends_with_s,
                relative_gap=self._options.relative_gap,
                seed=stage.seed,
            ),
            watcher=StageWatch(
                search,
                built=built,
                proves_bounds=proves_bounds,
                ends_with_s=stage.ends_with_s,
            ),
        )
        return _StageEnd(scope=scope, cause=solved.outcome.cause, solver=solved.solver)


def _stages(options: SearchOptions, *, prune_degree: float | None) -> list[_Stage]:
    small = [
        _Stage(
            partial_inference=False,
            prune_degree=prune_degree or _SMALL_STAGE_DEGREE,
            seed=options.seed + number,
            ends_with_s=options.time_limit_s
            * (1 - _SMALL_STAGES_SHARE * (number + 1) / _SMALL_STAGES),
        )
        for number in range(_SMALL_STAGES)
    ]
    as_asked = _Stage(
        partial_inference=options.partial_inference,
        prune_degree=prune_degree,
        seed=options.seed,
        ends_with_s=0.0,
    )
    return [*small, as_asked]


def _flow_of_best(
    problem: Problem, search: MilpSearch, *, stage: _Stage, rules: PlacementRules
) -> Flow | None:
    if search.best is None:
        return None
    return max_flow(
        problem,
        search.best,
        partial_inference=stage.partial_inference,
        max_hops=rules.max_hops,
    )


def _scope(
    problem: Problem, links: tuple[Edge, ...], *, stage: _Stage, start_flow: Flow | None
) -> _Scope:
    """The stage's links; those that carry the start's flow are kept, or pruning would void it."""
    if stage.prune_degree is not None:
        used = {
            (edge.source, edge.target)
            for edge in (start_flow.edges if start_flow is not None else ())
            if edge.flow_tokens_per_s > 0
        }
        links = prune_links(
            problem, links, average_degree=stage.prune_degree, keep=used, seed=stage.seed
        )
    return _Scope(partial_inference=stage.partial_inference, links=links)


def _reason(ends: list[_StageEnd], *, whole: _Scope) -> StopReason:
    """Why a search ended whose solvers ended by themselves."""
    if any(end.cause == "optimal" and end.scope == whole for end in ends):
        return "optimal"
    ran_out = not ends or ends[-1].cause in ("time limit", "stopped")
    return "time limit" if ran_out else "heuristic"


def _solver_names(ends: list[_StageEnd]) -> str:
    """Each solver once, in the order of the stages."""
    names = list(dict.fromkeys(end.solver for end in ends))
    return ", then ".join(names) if names else NO_SOLVER
