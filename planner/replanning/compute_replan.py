"""A running placement and a changed problem -> what to do: route anew, or move how many bytes.

1. Zero moves: what still stands of the placement, with what it is worth now. Milliseconds.
2. From scratch: the best placement found without regard to what runs, then with like nodes
   exchanged so that they keep what they hold.
3. Around all these, within a budget of bytes, for several budgets. For the flow: by an integer
   program, stages that carry almost all of it, most of them held already; then annealed and
   climbed. For other objectives: stages annealed on the estimate, then the best simulated.

The second and the first bounds prove how much flow there can be.

Bytes moved are newly held layers times the bytes of a layer; to drop layers costs nothing. All
flows are exact max flows of the changed problem under the rules.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.bounds import upper_bound_tokens_per_s
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.plan_forecast import PlanForecast
from planner.domain.problem import Problem
from planner.feasibility import check_rules, conform, restricted_problem
from planner.flow_check import check_flow
from planner.placers.alignment import aligned_to
from planner.placers.base import NEVER, CancelToken
from planner.placers.board import Score
from planner.placers.flow_meter import flow_under
from planner.placers.stop import Stop
from planner.plan_options import PlanOptions
from planner.planning import (
    NoPlacementFound,
    compute_plan,
    objective_of,
    placements_to_serve,
    serving_trials,
)
from planner.replanning.answers import Front, Replan, ReplanPoint, ReplanProgress
from planner.replanning.around import Around
from planner.replanning.by_stages import ByStages
from planner.replanning.options import ReplanOptions
from planner.replanning.served import ZERO_MOVES, AroundServed
from planner.tuning.replanning import ReplanTuning as tuned

FROM_SCRATCH = "from scratch"
ALIGNED = "from scratch, like nodes exchanged"


def zero_moves(
    problem: Problem, running: Placement, *, options: PlanOptions
) -> tuple[Placement, Flow]:
    """The running placement on the changed problem, with its flow: same layers, new weights.

    Layers that no longer fit are dropped; pins that are not held yet are moves, which it makes.
    Raises InvalidRules and ModelDoesNotFit.
    """
    check_rules(problem, options.rules)
    restricted = restricted_problem(problem, options.rules)
    kept = conform(restricted, running, options.rules)
    return kept, flow_under(options.search_options, restricted, kept)


def unmoved_score(problem: Problem, running: Placement, *, options: PlanOptions) -> Score:
    """What the placement of `zero_moves` is worth by the objective of the options.

    Raises InvalidRules, InvalidOptions and ModelDoesNotFit.
    """
    check_rules(problem, options.rules)
    restricted = restricted_problem(problem, options.rules)
    objective = objective_of(restricted, replace(options, rules=options.rules.once_restricted))
    return objective.score(conform(restricted, running, options.rules))


def replan(
    problem: Problem,
    running: Placement,
    *,
    options: ReplanOptions,
    progress: ReplanProgress = lambda _: None,
    cancel: CancelToken = NEVER,
    clock: Callable[[], float] = time.monotonic,
) -> Replan:
    """The best answers found in time or until `cancel`, the zero-move answer among them.

    Raises InvalidRules, InvalidOptions, ModelDoesNotFit, FlowCheckFailed.
    """
    stop = Stop(time_limit_s=options.time_limit_s, cancel=cancel, clock=clock)
    check_rules(problem, options.plan.rules)
    problem = restricted_problem(problem, options.plan.rules)
    plan_options = replace(options.plan, rules=options.plan.rules.once_restricted)
    options = replace(options, plan=plan_options)
    front = Front(
        problem,
        running,
        objective=objective_of(problem, plan_options),
        elapsed=lambda: stop.elapsed_s,
        hear=progress,
    )
    kept = conform(problem, running, plan_options.rules)
    unmoved = front.offer(kept, method=ZERO_MOVES)
    search = _search_flow if plan_options.objective == "flow" else _search_served
    found = search(problem, kept, front, options=options, stop=stop)
    pareto = front.pareto()
    budget = options.budget_bytes
    within = [point for point in pareto if budget is None or point.moved_bytes <= budget]
    chosen = found.chosen or (within[-1] if within else unmoved)
    flows = [
        flow_under(plan_options.search_options, problem, point.placement)
        for point in {id(point): point for point in (*pareto, chosen)}.values()
    ]
    for flow in flows:
        check_flow(flow, problem=problem)
    return Replan(
        zero_moves=unmoved,
        from_scratch=found.fresh,
        pareto=pareto,
        chosen=chosen,
        upper_bound_tokens_per_s=max(
            found.upper_bound_tokens_per_s, *(flow.value_tokens_per_s for flow in flows)
        ),
        forecast=found.forecast,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a search leaves beside its answers; `chosen` only where it simulated some."""

    fresh: ReplanPoint | None
    upper_bound_tokens_per_s: float
    chosen: ReplanPoint | None = None
    forecast: PlanForecast | None = None


def _search_flow(
    problem: Problem, kept: Placement, front: Front, *, options: ReplanOptions, stop: Stop
) -> _Found:
    around = Around(problem, kept, options=options, front=front)
    around.repair()
    fresh, bound = None, upper_bound_tokens_per_s(problem)
    if not stop.is_over():
        limit_s = min(options.plan.time_limit_s, stop.left_s * tuned.SCRATCH_SHARE)
        scratch = replace(options.plan, time_limit_s=limit_s)
        fresh, proven = _from_scratch(problem, front, options=scratch, stop=stop)
        bound = min(bound, proven)
    if not stop.is_over():
        ByStages(problem, options=options, front=front, upper_bound_tokens_per_s=bound).search(
            stop.within(stop.left_s * tuned.STAGES_SHARE),
            budget_layers=min(front.budgets(fresh, options.budget_bytes)),
        )
    around.search(fresh, stop)
    return _Found(fresh=fresh, upper_bound_tokens_per_s=bound)


def _from_scratch(
    problem: Problem, front: Front, *, options: PlanOptions, stop: Stop
) -> tuple[ReplanPoint | None, float]:
    """The best answer found without regard to what runs, and the bound that was proven."""
    bound = math.inf

    def hear(incumbent: Incumbent) -> None:
        nonlocal bound
        bound = min(bound, incumbent.upper_bound_tokens_per_s)

    try:
        plan = compute_plan(problem, options=options, progress=hear, cancel=stop, clock=stop.clock)
    except NoPlacementFound:
        return None, bound
    fresh = front.offer(plan.placement, method=FROM_SCRATCH)
    front.offer(
        aligned_to(problem, plan.placement, front.running, rules=options.rules), method=ALIGNED
    )
    return fresh, plan.upper_bound_tokens_per_s


def _search_served(
    problem: Problem, kept: Placement, front: Front, *, options: ReplanOptions, stop: Stop
) -> _Found:
    trials, rules = serving_trials(problem, options.plan), options.plan.rules
    around = AroundServed(problem, kept, options=options, trials=trials, front=front)
    around.repair()
    fresh, bound = None, upper_bound_tokens_per_s(problem)

    def hear(incumbent: Incumbent) -> None:
        nonlocal bound
        bound = min(bound, incumbent.upper_bound_tokens_per_s)

    if not stop.is_over():
        found = placements_to_serve(
            problem,
            options.plan,
            trials,
            stop=stop.within(stop.left_s * tuned.SERVED_SCRATCH_SHARE),
            progress=hear,
        )
        for placement in found[: tuned.OFFERED]:
            point = around.offer(placement, method=FROM_SCRATCH)
            fresh = fresh or point
            aligned = aligned_to(problem, placement, front.running, rules=rules)
            around.offer(aligned, method=ALIGNED)
    search_s = max(
        stop.left_s * tuned.LEAST_SEARCH_SHARE, stop.left_s - around.expected_decision_s()
    )
    # Annealings need all the time there is; answers of fewer bytes are found on the way.
    around.search(max(front.budgets(fresh, options.budget_bytes)), stop.within(search_s))
    decision = around.decide(options.budget_bytes, stop)
    if decision is None:
        return _Found(fresh=fresh, upper_bound_tokens_per_s=bound)
    chosen, forecast = decision
    return _Found(fresh=fresh, upper_bound_tokens_per_s=bound, chosen=chosen, forecast=forecast)
