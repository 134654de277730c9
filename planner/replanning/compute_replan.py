"""A running placement and a changed problem -> what to do: route anew, or move how many bytes.

1. Zero moves: what still stands of the placement, with the max flow it has now. Milliseconds.
2. From scratch: the best placement found without regard to what runs, then with like nodes
   exchanged so that they keep what they hold.
3. By an integer program: stages that carry almost all the flow, most of them held already.
4. Around all these: annealed and climbed within a budget of bytes, for several budgets.

The second and the first bounds prove how much flow there can be.

Bytes moved are newly held layers times the bytes of a layer; to drop layers costs nothing. All
flows are exact max flows of the changed problem under the rules.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace

from planner.bounds import upper_bound_tokens_per_s
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.feasibility import check_rules, conform, restricted_problem
from planner.flow_check import check_flow
from planner.placers.alignment import aligned_to
from planner.placers.base import NEVER, CancelToken
from planner.placers.flow_meter import FlowMeter
from planner.placers.stop import Stop
from planner.plan_options import PlanOptions
from planner.planning import NoPlacementFound, compute_plan
from planner.replanning.answers import Front, Replan, ReplanPoint, ReplanProgress
from planner.replanning.around import Around
from planner.replanning.by_stages import ByStages
from planner.replanning.options import ReplanOptions

ZERO_MOVES = "zero moves"
FROM_SCRATCH = "from scratch"
ALIGNED = "from scratch, like nodes exchanged"
_SCRATCH_SHARE = 0.3
_STAGES_SHARE = 0.8


def zero_moves(problem: Problem, running: Placement, *, options: PlanOptions) -> ReplanPoint:
    """The running placement on the changed problem: new flow, same layers.

    Layers that no longer fit are dropped; pins that are not held yet are moves, which it makes.
    Raises InvalidRules and ModelDoesNotFit.
    """
    check_rules(problem, options.rules)
    restricted = restricted_problem(problem, options.rules)
    front = Front(restricted, running, options=options, elapsed=lambda: 0.0, hear=lambda _: None)
    return front.point(conform(restricted, running, options.rules), method=ZERO_MOVES)


def unmoved_tokens_per_s(problem: Problem, running: Placement, *, options: PlanOptions) -> float:
    """The flow of `zero_moves`, without the time to say what flows over every connection.

    Raises InvalidRules and ModelDoesNotFit.
    """
    check_rules(problem, options.rules)
    restricted = restricted_problem(problem, options.rules)
    meter = FlowMeter(restricted, options.search_options)
    return meter.tokens_per_s(conform(restricted, running, options.rules))


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

    Raises InvalidRules, ModelDoesNotFit, FlowCheckFailed.
    """
    stop = Stop(time_limit_s=options.time_limit_s, cancel=cancel, clock=clock)
    check_rules(problem, options.plan.rules)
    problem = restricted_problem(problem, options.plan.rules)
    plan_options = replace(options.plan, rules=options.plan.rules.once_restricted)
    front = Front(
        problem,
        running,
        options=plan_options,
        elapsed=lambda: stop.elapsed_s,
        hear=progress,
    )
    kept = conform(problem, running, plan_options.rules)
    unmoved = front.offer(kept, method=ZERO_MOVES)
    own_options = replace(options, plan=plan_options)
    around = Around(problem, kept, options=own_options, front=front)
    around.repair()

    fresh, bound = None, upper_bound_tokens_per_s(problem)
    if not stop.is_over():
        limit_s = min(plan_options.time_limit_s, stop.left_s * _SCRATCH_SHARE)
        scratch = replace(plan_options, time_limit_s=limit_s)
        fresh, proven = _from_scratch(problem, front, options=scratch, stop=stop)
        bound = min(bound, proven)
    if not stop.is_over():
        ByStages(problem, options=own_options, front=front, upper_bound_tokens_per_s=bound).search(
            stop.within(stop.left_s * _STAGES_SHARE), budget_layers=min(around.budgets(fresh))
        )
    around.search(fresh, stop)
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
        upper_bound_tokens_per_s=max(bound, pareto[-1].flow_tokens_per_s),
    )


def _from_scratch(
    problem: Problem,
    front: Front,
    *,
    options: PlanOptions,
    stop: Stop,
) -> tuple[ReplanPoint | None, float]:
    """The best answer found without regard to what runs, and the bound that was proven."""
    bound = math.inf

    def hear(incumbent: Incumbent) -> None:
        nonlocal bound
        bound = min(bound, incumbent.upper_bound_tokens_per_s)

    try:
        plan = compute_plan(
            problem, options=options.for_flow, progress=hear, cancel=stop, clock=stop.clock
        )
    except NoPlacementFound:
        return None, bound
    fresh = front.offer(plan.placement, method=FROM_SCRATCH)
    front.offer(
        aligned_to(problem, plan.placement, front.running, rules=options.rules), method=ALIGNED
    )
    return fresh, plan.upper_bound_tokens_per_s
