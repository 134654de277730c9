"""The use case: a problem and options -> a checked plan. Read this file first.

1. Apply the rules; refuse what cannot hold the model; prove an upper bound on any placement's flow.
2. Place by the baselines (separate pipelines, Swarm, Petals) and guards (SP+, replicas).
   Milliseconds; never do worse.
3. Unless a baseline is at the bound already, search by the chosen placer, warm-started.
4. Unless flow is the objective, that took a tenth of the time, and what it found on the way was
   estimated and shown: its answer, the baselines and much else now compete by what they are
   forecast to serve (`planner.objectives`).
5. Recompute the winner's flow by a second method. A plan that fails its check is an error.

Every flow in here is an exact max flow of a placement, never a search's own bookkeeping.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.bounds import upper_bound_tokens_per_s
from planner.checked_plan import checked_plan
from planner.domain.errors import PlannerError
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent, Plan
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import check_reach, check_rules, conform, restricted_problem
from planner.objectives.goal import goal_for
from planner.objectives.search import ServingSearch
from planner.objectives.trial import Trial, Trials
from planner.placers.base import START, CancelToken, InvalidOptions, Progress
from planner.placers.choice import chosen_placer
from planner.placers.flow_meter import FlowMeter
from planner.placers.replicas import place_replicas
from planner.placers.separate_pipelines import (
    place_separate_pipelines_plus,
)
from planner.plan_options import BASELINES, PlanOptions

# What computing the answer's flow a second time takes; kept back from the search.
_CHECK_S_PER_NODE = 6e-4
# Of the time, where flow is not the objective: for the flow, and when all searching ends, by how
# long the simulations will take.
_FLOW_SHARE_OF_TIME = 0.1
_ESTIMATING_SHARE_OF_TIME = 0.2  # of the search for flow, to show what it finds
_MOST_SEARCH_SHARE_OF_TIME = 0.6
_LEAST_SEARCH_SHARE_OF_TIME = 0.35

# Candidates whatever the options: they take a millisecond, and no answer may be below them.
GUARDS: dict[str, Callable[[Problem], Placement | None]] = {
    "separate_pipelines_plus": place_separate_pipelines_plus,
    "replicas": place_replicas,
}
# Marks what the search for flow found, in the progress of another objective.
FOR_FLOW = ", for flow"
NO_SOLVER = "none"


class NoPlacementFound(PlannerError):
    """No placement that carries any flow is known when the search ends."""


def compute_plan(
    problem: Problem,
    *,
    options: PlanOptions,
    progress: Progress,
    cancel: CancelToken,
    best_known: Incumbent | None = None,
    start: Placement | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Plan:
    """The best plan found in the time limit, or until `cancel`; never below the best baseline.

    `best_known` is what an earlier search of the same problem and options reached; this one goes
    on from it. `start` may come from anywhere, another problem's plan too: what of it fits this
    problem and its rules is a candidate like the baselines. `progress` hears of every better
    placement and bound. Raises ModelDoesNotFit (ModelOutOfReach for want of links), InvalidRules,
    NoPlacementFound, LimitsNotKept, InvalidOptions and FlowCheckFailed.
    """
    started_s = clock()
    check_rules(problem, options.rules)
    problem = restricted_problem(problem, options.rules)
    check_reach(problem)
    options = replace(options, rules=options.rules.once_restricted)
    run = Run(
        problem=problem,
        options=options,
        progress=progress,
        cancel=cancel,
        clock=clock,
        started_s=started_s,
    )
    if options.objective == "flow":
        return _plan_for_flow(run, best_known=best_known, start=start)
    return _plan_for_serving(run, best_known=best_known, start=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What every step of one computation needs; its seconds count from `started_s` on `clock`."""

    problem: Problem
    options: PlanOptions
    progress: Progress
    cancel: CancelToken
    clock: Callable[[], float]
    started_s: float

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.started_s

    def progress_from_now(self) -> Progress:
        """Reports the incumbents of a search that begins now, at their seconds of this run."""
        begun_s = self.elapsed_s

        def report(incumbent: Incumbent, /) -> None:
            self.progress(replace(incumbent, elapsed_s=begun_s + incumbent.elapsed_s))

        return report


def _plan_for_flow(run: Run, *, best_known: Incumbent | None, start: Placement | None) -> Plan:
    found = _largest_flow(run, best_known=best_known, start=start)
    if found.standing.best is None:
        raise NoPlacementFound(_NOTHING_FOUND.format(reason=found.stop_reason))
    return _checked(run, found, found.standing.best, found.standing.placer, found.stop_reason)


def serving_trials(problem: Problem, options: PlanOptions) -> Trials:
    """What holds placements of `problem` against the objective; its rules are applied already.

    Raises InvalidOptions.
    """
    return Trials(
        problem,
        goal=goal_for(
            problem,
            objective=options.objective,
            ttft_limit_s=options.ttft_limit_s,
            tpot_limit_s=options.tpot_limit_s,
            demand_tokens_per_s=options.demand_tokens_per_s,
            limit_percentile=options.limit_percentile,
        ),
        policy=options.policy,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
    )


def _plan_for_serving(run: Run, *, best_known: Incumbent | None, start: Placement | None) -> Plan:
    """As much of the goal as is found; the flow's answer where nothing is forecast to serve."""
    options, limit_s = run.options, run.options.time_limit_s
    trials = serving_trials(run.problem, options)
    upper_bound = math.inf  # until the search for flow tells one
    if best_known is not None or start is not None:
        upper_bound = upper_bound_tokens_per_s(run.problem)
    if best_known is not None:
        upper_bound = min(upper_bound, best_known.upper_bound_tokens_per_s)

    def report(trial: Trial) -> None:
        flow = trial.flow.value_tokens_per_s
        run.progress(
            Incumbent(
                elapsed_s=run.elapsed_s,
                flow_tokens_per_s=flow,
                upper_bound_tokens_per_s=max(upper_bound, flow),
                placer=trial.placer,
                placement=trial.placement,
                objective_value=trial.value if trial.keeps_limits else 0.0,
            )
        )

    serving = ServingSearch(
        trials,
        rules=options.rules,
        seed=options.seed,
        cancel=run.cancel,
        clock=run.clock,
        on_better=report,
    )
    if best_known is not None:
        serving.offer(best_known.placement, placer=best_known.placer, is_guard=True)
    if start is not None:
        serving.offer(conform(run.problem, start, options.rules), placer=START, is_guard=True)
    estimating_s = 0.0

    def offer_on_the_way(incumbent: Incumbent, /) -> None:
        nonlocal upper_bound, estimating_s
        before = serving.best
        is_tighter = incumbent.upper_bound_tokens_per_s < upper_bound
        upper_bound = min(upper_bound, incumbent.upper_bound_tokens_per_s)
        begun_s = run.elapsed_s
        if estimating_s <= _ESTIMATING_SHARE_OF_TIME * begun_s or begun_s == 0:
            serving.offer(incumbent.placement, placer=f"{incumbent.placer}{FOR_FLOW}")
            estimating_s += run.elapsed_s - begun_s
        if is_tighter and before is not None and serving.best is before:
            report(before)

    found = _largest_flow(
        replace(
            run,
            options=replace(options, time_limit_s=limit_s * _FLOW_SHARE_OF_TIME),
            progress=offer_on_the_way,
        ),
        best_known=best_known,
        start=start,
    )
    upper_bound = found.standing.upper_bound
    for name, placement in found.placed.items():
        if placement is not None:
            serving.offer(placement, placer=name, is_guard=True)
    if found.standing.best is not None:
        serving.offer(found.standing.best, placer=found.standing.placer)
    decided_s = limit_s - _check_s(run.problem)
    search_ends_s = min(
        limit_s * _MOST_SEARCH_SHARE_OF_TIME,
        max(limit_s * _LEAST_SEARCH_SHARE_OF_TIME, decided_s - serving.expected_decision_s()),
    )
    stop_reason = serving.run(time_limit_s=search_ends_s - run.elapsed_s)
    decision = serving.decide(time_limit_s=decided_s - run.elapsed_s)
    if decision is None:
        if found.standing.best is None:
            raise NoPlacementFound(_NOTHING_FOUND.format(reason=stop_reason))
        return _checked(run, found, found.standing.best, found.standing.placer, stop_reason)
    trial = decision.trial
    plan = _checked(run, found, trial.placement, trial.placer, stop_reason)
    return replace(plan, forecast=decision.forecast)


_NOTHING_FOUND = (
    "no placement that carries any flow was found ({reason}); give the search more time, allow "
    "partial inference or more hops, or check that links lead from the coordinator to the nodes, "
    "between them, and back"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlowSearch:
    """What the search for flow found; `placed` are those of the baselines and guards."""

    standing: "_Standing"
    placed: dict[str, Placement | None]
    solver: str
    stop_reason: str


def _largest_flow(
    run: Run, *, best_known: Incumbent | None, start: Placement | None
) -> _FlowSearch:
    problem, options = run.problem, run.options
    standing = _Standing(problem, options, run.progress, elapsed=lambda: run.elapsed_s)
    if best_known is not None:
        standing.offer(
            best_known.placement,
            placer=best_known.placer,
            upper_bound=best_known.upper_bound_tokens_per_s,
        )
    if start is not None:
        standing.offer(conform(problem, start, options.rules), placer=START)
    placers = {name: BASELINES[name] for name in options.baselines} | GUARDS
    placed = {name: _placed(place, problem, options.rules) for name, place in placers.items()}
    for name, placement in placed.items():
        if placement is not None:
            standing.offer(placement, placer=name)
    solver, stop_reason = NO_SOLVER, "bound reached"
    if not standing.is_at_bound():
        solver, stop_reason = _search(
            problem,
            options=options,
            start=_warm_start(options, standing=standing, placed=placed),
            standing=standing,
            cancel=run.cancel,
            clock=run.clock,
        )
    return _FlowSearch(standing=standing, placed=placed, solver=solver, stop_reason=stop_reason)


def _checked(
    run: Run, found: _FlowSearch, placement: Placement, placer: str, stop_reason: str
) -> Plan:
    return checked_plan(
        run.problem,
        placement,
        partial_inference=run.options.partial_inference,
        max_hops=run.options.rules.max_hops,
        upper_bound_tokens_per_s=found.standing.upper_bound,
        placer=placer,
        solver=found.solver,
        stop_reason=stop_reason,
        elapsed_s=run.elapsed_s,
    )


def _check_s(problem: Problem) -> float:
    return _CHECK_S_PER_NODE * len(problem.cluster.nodes)


def _placed(
    place: Callable[[Problem], Placement | None], problem: Problem, rules: PlacementRules
) -> Placement | None:
    """A baseline's placement; baselines know nothing of pins, so these replace what they chose."""
    placement = place(problem)
    return None if placement is None else conform(problem, placement, rules)


class _Standing:
    """The best placement by exact flow and the tightest bound, reported whenever one improves."""

    def __init__(
        self,
        problem: Problem,
        options: PlanOptions,
        progress: Progress,
        *,
        elapsed: Callable[[], float],
    ) -> None:
        self._options = options
        self._progress = progress
        self._elapsed = elapsed
        self._meter = FlowMeter(problem, options.search_options(time_limit_s=options.time_limit_s))
        self.upper_bound = upper_bound_tokens_per_s(problem)
        self.best: Placement | None = None
        self.best_flow = 0.0
        self.placer = ""

    @property
    def elapsed_s(self) -> float:
        return self._elapsed()

    def is_at_bound(self) -> bool:
        return self.best_flow >= self.upper_bound * (1 - self._options.relative_gap)

    def flow_of(self, placement: Placement) -> float:
        return self._meter.tokens_per_s(placement)

    def offer(self, placement: Placement, *, placer: str, upper_bound: float = math.inf) -> None:
        """Take the placement if its flow is better, the bound if it is tighter; report either."""
        flow = self.flow_of(placement)
        is_better = flow > self.best_flow
        if is_better:
            self.best, self.best_flow, self.placer = placement, flow, placer
        is_tighter = upper_bound < self.upper_bound
        self.upper_bound = min(self.upper_bound, upper_bound)
        if self.best is not None and (is_better or is_tighter):
            self._progress(
                Incumbent(
                    elapsed_s=self.elapsed_s,
                    flow_tokens_per_s=self.best_flow,
                    upper_bound_tokens_per_s=max(self.upper_bound, self.best_flow),
                    placer=self.placer,
                    placement=self.best,
                )
            )


def _warm_start(
    options: PlanOptions, *, standing: _Standing, placed: dict[str, Placement | None]
) -> Placement | None:
    if options.warm_start == "best":
        return standing.best
    if options.warm_start == "none":
        return None
    start = placed[options.warm_start]
    if start is None or standing.flow_of(start) <= 0:
        raise InvalidOptions(
            f"warm_start is {options.warm_start!r}, whose placement carries no flow here; "
            "use 'best' or 'none'"
        )
    return start


def _search(
    problem: Problem,
    *,
    options: PlanOptions,
    start: Placement | None,
    standing: _Standing,
    cancel: CancelToken,
    clock: Callable[[], float],
) -> tuple[str, str]:
    """Improve the standing until the placer stops; returns (solver, stop reason)."""
    left_s = options.time_limit_s - _check_s(problem) - standing.elapsed_s
    if left_s <= 0:
        return NO_SOLVER, "time limit"
    placer = chosen_placer(
        options.placer_options(known_upper_bound_tokens_per_s=standing.upper_bound), clock=clock
    )
    result = placer.search(
        problem,
        options=options.search_options(time_limit_s=left_s),
        start=start,
        progress=lambda incumbent: standing.offer(
            incumbent.placement,
            placer=incumbent.placer,
            upper_bound=incumbent.upper_bound_tokens_per_s,
        ),
        cancel=cancel,
    )
    if result.placement is not None:
        standing.offer(
            result.placement,
            placer=placer.name,
            upper_bound=result.upper_bound_tokens_per_s,
        )
    return result.solver, result.stop_reason
