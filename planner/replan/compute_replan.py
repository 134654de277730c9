"""A running placement and a changed problem -> what to do: route anew, or move how many bytes.

1. Zero moves: what still stands of the placement, with the max flow it has now. Milliseconds.
2. From scratch: the best placement found without regard to what runs, then with like nodes
   exchanged so that they keep what they hold.
3. Around the running placement: annealed and climbed within a budget of bytes, for several budgets.

Bytes moved are newly held layers times the bytes of a layer; to drop layers costs nothing. All
flows are exact max flows of the changed problem under the rules.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from planner.compute_plan import NoPlacementFound, PlanOptions, compute_plan
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.feasibility import check_rules, conform, restricted_problem
from planner.flow_check import check_flow
from planner.placers.alignment import aligned_to
from planner.placers.base import CancelToken
from planner.replan.answers import Front, Replan, ReplanPoint, ReplanProgress
from planner.replan.around import Around
from planner.replan.options import ReplanOptions

ZERO_MOVES = "zero moves"
FROM_SCRATCH = "from scratch"
ALIGNED = "from scratch, like nodes exchanged"
_SCRATCH_SHARE = 0.3


def zero_moves(problem: Problem, running: Placement, *, options: PlanOptions) -> ReplanPoint:
    """The running placement on the changed problem: new flow, same layers.

    Layers that no longer fit are dropped; pins that are not held yet are moves, which it makes.
    Raises InvalidRules and ModelDoesNotFit.
    """
    check_rules(problem, options.rules)
    restricted = restricted_problem(problem, options.rules)
    front = Front(restricted, running, options=options, elapsed=lambda: 0.0, hear=lambda _: None)
    return front.point(conform(restricted, running, options.rules), method=ZERO_MOVES)


def replan(
    problem: Problem,
    running: Placement,
    *,
    options: ReplanOptions,
    progress: ReplanProgress,
    cancel: CancelToken,
    clock: Callable[[], float] = time.monotonic,
) -> Replan:
    """The best answers found in time or until `cancel`, the zero-move answer among them.

    Raises InvalidRules, ModelDoesNotFit, FlowCheckFailed.
    """
    started_s = clock()

    def left_s() -> float:
        return options.time_limit_s - (clock() - started_s)

    check_rules(problem, options.plan.rules)
    problem = restricted_problem(problem, options.plan.rules)
    plan_options = replace(options.plan, rules=options.plan.rules.once_restricted)
    front = Front(
        problem,
        running,
        options=plan_options,
        elapsed=lambda: clock() - started_s,
        hear=progress,
    )
    kept = conform(problem, running, plan_options.rules)
    unmoved = front.offer(kept, method=ZERO_MOVES)
    around = Around(problem, kept, options=replace(options, plan=plan_options), front=front)
    around.repair()
    fresh = None
    if left_s() > 0 and not cancel.is_cancelled():
        limit_s = min(plan_options.time_limit_s, left_s() * _SCRATCH_SHARE)
        fresh = _from_scratch(
            problem, front, options=replace(plan_options, time_limit_s=limit_s), cancel=cancel
        )
    around.search(fresh, should_stop=lambda: cancel.is_cancelled() or left_s() <= 0)
    pareto = front.pareto()
    for point in pareto:
        check_flow(point.flow, problem=problem)
    budget = options.budget_bytes
    within = [point for point in pareto if budget is None or point.moved_bytes <= budget]
    return Replan(
        zero_moves=unmoved,
        from_scratch=fresh,
        pareto=pareto,
        chosen=within[-1] if within else unmoved,
    )


def _from_scratch(
    problem: Problem, front: Front, *, options: PlanOptions, cancel: CancelToken
) -> ReplanPoint | None:
    try:
        plan = compute_plan(
            problem, options=options.for_flow, progress=lambda _: None, cancel=cancel
        )
    except NoPlacementFound:
        return None
    fresh = front.offer(plan.placement, method=FROM_SCRATCH)
    front.offer(
        aligned_to(problem, plan.placement, front.running, rules=options.rules), method=ALIGNED
    )
    return fresh
