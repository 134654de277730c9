"""The use case: a problem and options -> a checked plan. Read this file first.

1. Apply the rules; refuse what cannot hold the model; prove an upper bound on any placement's flow.
2. Place by the baselines (separate pipelines, Swarm, Petals) and guards (SP+, replicas).
   Milliseconds; never do worse.
3. Unless a baseline is at the bound already, search by the chosen method from the best so far.
   All of them offer what they find to one `Board`, which reports what is better.
4. Unless flow is the objective, that took part of the time, by programs, and what it found on the
   way was estimated and shown. Now its answer, the baselines and more candidates are ranked by
   what they are forecast to serve (`planner.objectives`), beside a bound on that
   (`planner.bounds.served`).
5. Recompute the winner's flow by a second method. A plan that fails its check is an error.

Every flow in here is an exact max flow of a placement, never a search's own bookkeeping.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.bounds.served import served_bounds_tokens_per_s
from planner.checked_plan import checked_plan
from planner.domain.errors import PlannerError
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent, Plan
from planner.domain.plan_forecast import PlanForecast
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import applied, check_reach, conform, restricted_problem
from planner.objectives.goal import Aim
from planner.objectives.search import ServingSearch
from planner.objectives.trial import Trials
from planner.placers.base import NEVER, START, CancelToken, InvalidOptions, Progress, StopReason
from planner.placers.board import Board, LargestFlow, Method, Objective
from planner.placers.portfolio import METHODS, search_by_programs
from planner.placers.replicas import place_replicas
from planner.placers.separate_pipelines import place_separate_pipelines_plus
from planner.placers.stop import Stop
from planner.plan_options import BASELINES, PlanOptions
from planner.tuning.served import PlanningTuning as tuned

# Candidates with all options: they take a millisecond, and no answer may be below them.
GUARDS: dict[str, Callable[[Problem], Placement | None]] = {
    "separate_pipelines_plus": place_separate_pipelines_plus,
    "replicas": place_replicas,
}
# Marks what the search for flow found, in the progress of another objective.
FOR_FLOW = ", for flow"


class NoPlacementFound(PlannerError):
    """No placement that carries any flow is known when the search ends."""


def compute_plan(
    problem: Problem,
    *,
    options: PlanOptions,
    progress: Progress = lambda _: None,
    cancel: CancelToken = NEVER,
    best_known: Incumbent | None = None,
    start: Placement | None = None,
    simulates: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """The best plan found in the time limit, or until `cancel`; never below the best baseline.

    `best_known` is the result of an earlier search of the same problem and options, which this one
    continues. `start` may be any plan, also of another problem: the part that fits this problem
    and its rules is a candidate like the baselines. Without `simulates` the best by estimate is
    taken. `progress` is called with every better placement and bound. Raises ModelDoesNotFit
    (ModelOutOfReach for want of links), InvalidRules, NoPlacementFound, LimitsNotKept,
    InvalidOptions and FlowCheckFailed.
    """
    stop = Stop(time_limit_s=options.time_limit_s, cancel=cancel, clock=clock)
    problem, rules = applied(problem, options.rules)
    check_reach(problem)
    options = replace(options, rules=rules)
    known = _Known(
        best=best_known,
        start=None if start is None else conform(problem, start, options.rules),
    )
    # The search leaves time to compute the answer's flow a second time.
    search_s = options.time_limit_s - tuned.CHECK_S_PER_NODE * len(problem.cluster.nodes)
    if options.objective == "flow":
        found = _largest_flow(
            problem,
            options,
            known,
            stop=stop.until(search_s),
            progress=progress,
            method=METHODS[options.placer],
        )
        return _checked(found, found.board.placement, found.board.placer, found.stop_reason)
    return _plan_for_serving(
        problem,
        options,
        known,
        stop=stop,
        search_s=search_s,
        simulates=simulates,
        progress=progress,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Placements that are known before a search: an earlier answer of it, and one to begin at."""

    best: Incumbent | None
    start: Placement | None


def estimated_forecast(
    problem: Problem, placement: Placement, *, options: PlanOptions
) -> PlanForecast | None:
    """The forecast by estimate; None if the objective is flow or nothing is served."""
    if options.objective == "flow":
        return None
    trials = Trials(restricted_problem(problem, options.rules), options)
    trial = trials.estimated(placement, placer="")
    return trials.forecast(trial, None) if trial.value > 0 else None


def objective_of(problem: Problem, options: PlanOptions) -> Objective:
    """The objective of the options; their rules are already applied to `problem`.

    Raises InvalidOptions.
    """
    if options.objective == "flow":
        return LargestFlow(problem, options)
    return Trials(problem, options)


def _plan_for_serving(
    problem: Problem,
    options: PlanOptions,
    known: _Known,
    *,
    stop: Stop,
    search_s: float,
    simulates: bool,
    progress: Progress,
) -> Plan:
    """The best plan for the goal; the one for flow if no plan is forecast to serve."""
    trials = Trials(problem, options)
    serving, found = _begun(problem, options, trials, known, stop=stop, progress=progress)
    limit_s, search_ends_s = options.time_limit_s, search_s
    if simulates and trials.goal.aim is Aim.THROUGHPUT:
        for bound in served_bounds_tokens_per_s(
            problem,
            policy=options.policy,
            rules=options.rules,
            should_stop=stop.within(limit_s * tuned.BOUND_SHARE_OF_TIME).is_over,
        ):
            serving.board.tighten_merit(bound)
    if simulates:
        left_s = search_s - stop.elapsed_s
        searching_s = min(
            limit_s * tuned.MOST_SEARCH_SHARE_OF_TIME - stop.elapsed_s,
            left_s - serving.expected_decision_s(),
        )
        search_ends_s = stop.elapsed_s + max(left_s * tuned.LEAST_SEARCH_SHARE_OF_TIME, searching_s)
    stop_reason = serving.run(stop.until(search_ends_s))
    outcome = serving.decide(stop.until(search_s) if simulates else stop.within(0.0))
    if outcome is None:
        return _checked(found, found.board.placement, found.board.placer, stop_reason)
    plan = _checked(found, outcome.trial.placement, outcome.trial.placer, stop_reason)
    forecast, most = trials.forecast(outcome.trial, outcome.figures), serving.board.merit_bound
    if most is not None:
        most = max(most, forecast.value)
    return replace(plan, forecast=replace(forecast, upper_bound=most))


def placements_to_serve(
    problem: Problem, options: PlanOptions, trials: Trials, *, stop: Stop, progress: Progress
) -> list[Placement]:
    """The best by estimate, the best first; the rules are applied to `problem` already."""
    known = _Known(best=None, start=None)
    options = replace(options, time_limit_s=max(stop.left_s, tuned.CHECK_S_PER_NODE))
    serving, _ = _begun(problem, options, trials, known, stop=stop, progress=progress)
    serving.run(stop)
    return [trial.placement for trial in serving.ranked()]


def _begun(
    problem: Problem,
    options: PlanOptions,
    trials: Trials,
    known: _Known,
    *,
    stop: Stop,
    progress: Progress,
) -> tuple[ServingSearch, "_FlowSearch"]:
    """The search for served tokens with what is known, and what a short one for flow found."""
    started_s = stop.elapsed_s
    board = Board(
        problem,
        options,
        stop=stop,
        progress=progress,
        # Until the search for flow proves one, if nothing needs one before.
        flow_bound_tokens_per_s=math.inf if known == _Known(best=None, start=None) else None,
    )
    serving = ServingSearch(board, trials, seed=options.seed)
    if known.best is not None:
        board.tighten(known.best.upper_bound_tokens_per_s)
        serving.offer(known.best.placement, placer=known.best.placer, is_guard=True)
    if known.start is not None:
        serving.offer(known.start, placer=START, is_guard=True)
    estimating_s = 0.0

    def offer_on_the_way(incumbent: Incumbent, /) -> None:
        nonlocal estimating_s
        bound, begun_s = incumbent.upper_bound_tokens_per_s, stop.elapsed_s
        if estimating_s <= tuned.ESTIMATING_SHARE_OF_TIME * begun_s or begun_s == 0:
            placer = f"{incumbent.placer}{FOR_FLOW}"
            serving.offer(incumbent.placement, placer=placer, bound_tokens_per_s=bound)
            estimating_s += stop.elapsed_s - begun_s
        board.tighten(bound)

    check_s = tuned.CHECK_S_PER_NODE * len(problem.cluster.nodes)
    share, method = tuned.FLOW_SHARE_OF_TIME, METHODS[options.placer]
    if options.placer == "auto":
        share, method = tuned.PROGRAMS_SHARE_OF_TIME, search_by_programs
    found = _largest_flow(
        problem,
        options,
        known,
        stop=stop.until(started_s + options.time_limit_s * share - check_s),
        progress=offer_on_the_way,
        method=method,
    )
    board.tighten(found.board.proven_bound_tokens_per_s)
    for name, placement in found.placed.items():
        if placement is not None:
            serving.offer(placement, placer=name, is_guard=True)
    if found.board.placement is not None:
        serving.offer(found.board.placement, placer=found.board.placer)
    return serving, found


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlowSearch:
    """Results of the search for flow; `placed` are those of the baselines and guards."""

    board: Board
    placed: dict[str, Placement | None]
    stop_reason: StopReason


def _largest_flow(
    problem: Problem,
    options: PlanOptions,
    known: _Known,
    *,
    stop: Stop,
    progress: Progress,
    method: Method,
) -> _FlowSearch:
    board = Board(problem, options, stop=stop, progress=progress)
    if known.best is not None:
        bound = known.best.upper_bound_tokens_per_s
        board.offer(known.best.placement, by=known.best.placer, bound_tokens_per_s=bound)
    if known.start is not None:
        board.offer(known.start, by=START)
    placers = {name: BASELINES[name] for name in options.baselines} | GUARDS
    placed = {name: _placed(place, problem, options.rules) for name, place in placers.items()}
    for name, placement in placed.items():
        if placement is not None:
            board.offer(placement, by=name)
    own: StopReason = "heuristic"
    if not board.is_at_bound() and stop.left_s > 0:
        own = method(_warm_started(board, options, placed), options.seed)
    return _FlowSearch(board=board, placed=placed, stop_reason=board.stop_reason(own))


def _warm_started(board: Board, options: PlanOptions, placed: dict[str, Placement | None]) -> Board:
    """The board to search on: this one, or one that begins elsewhere and reports to this one."""
    if options.warm_start == "best":
        return board
    own = board.apart()
    if options.warm_start != "none":
        start = placed[options.warm_start]
        if start is not None:
            own.offer(start, by=options.warm_start)
        if own.placement is None:
            raise InvalidOptions(
                f"warm_start is {options.warm_start!r}, whose placement carries no flow here; "
                "use 'best' or 'none'"
            )
    return own


def _checked(found: _FlowSearch, placement: Placement | None, placer: str, reason: str) -> Plan:
    board = found.board
    if placement is None:
        raise NoPlacementFound(
            f"no placement that carries any flow was found ({reason}); give the search more time, "
            "allow partial inference or more hops, or check that links lead from the coordinator "
            "to the nodes, between them, and back"
        )
    return checked_plan(
        board.problem,
        placement,
        partial_inference=board.options.partial_inference,
        max_hops=board.options.rules.max_hops,
        upper_bound_tokens_per_s=board.proven_bound_tokens_per_s,
        placer=placer,
        solver=board.solver,
        stop_reason=reason,
        elapsed_s=board.stop.elapsed_s,
    )


def _placed(
    place: Callable[[Problem], Placement | None], problem: Problem, rules: PlacementRules
) -> Placement | None:
    """A baseline's placement; baselines know nothing of pins, so these replace what they chose."""
    placement = place(problem)
    return None if placement is None else conform(problem, placement, rules)
