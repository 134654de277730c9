"""Replanning: new routes or placements for a changed problem, with the bytes each moves.

1. Zero moves: the part of the placement that is still valid, with its flow now. Milliseconds.
2. From scratch: the best placement found without regard to what runs, then with equal nodes
   exchanged so that fewer layers are loaded.
3. Around all these, within a budget of bytes, for several budgets. For the flow: by an integer
   program, stages that carry almost all of it, most of them held already; then annealed and
   climbed. For other objectives: stages annealed on the estimate, then the best simulated.

The second and the first bounds prove how much flow there can be.

Bytes moved are newly held layers times the bytes of a layer; to drop layers costs nothing. All
flows are exact max flows of the changed problem under the rules.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from planner.bounds.best import upper_bound_tokens_per_s
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.feasibility import applied, conform
from planner.flow_check import check_flow
from planner.objectives.trial import Trials
from planner.placers.alignment import aligned_to
from planner.placers.base import NEVER, CancelToken
from planner.placers.board import Score, flow_under
from planner.placers.stop import Stop
from planner.plan_options import PlanOptions
from planner.planning import objective_of
from planner.replanning.answers import ZERO_MOVES, Front, LeastBound, Replan, ReplanProgress
from planner.replanning.around import Around
from planner.replanning.options import ReplanOptions
from planner.replanning.served import AroundServed

FROM_SCRATCH = "from scratch"
ALIGNED = "from scratch, like nodes exchanged"


def zero_moves(
    problem: Problem, running: Placement, *, options: PlanOptions
) -> tuple[Placement, Flow]:
    """The running placement on the changed problem, with its flow: same layers, new weights.

    Layers that no longer fit are dropped; pins that are not held yet are moves, which it makes.
    Raises InvalidRules and ModelDoesNotFit.
    """
    problem, _ = applied(problem, options.rules)
    kept = conform(problem, running, options.rules)
    return kept, flow_under(options, problem, kept)


def unmoved_score(problem: Problem, running: Placement, *, options: PlanOptions) -> Score:
    """Score of the placement of `zero_moves` by the objective of the options.

    Raises InvalidRules, InvalidOptions and ModelDoesNotFit.
    """
    problem, rules = applied(problem, options.rules)
    objective = objective_of(problem, replace(options, rules=rules))
    return objective.score(conform(problem, running, options.rules))


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
    problem, rules = applied(problem, options.plan.rules)
    plan_options = replace(options.plan, rules=rules)
    options = replace(options, plan=plan_options)
    objective = objective_of(problem, plan_options)
    front = Front(
        problem,
        running,
        objective=objective,
        elapsed=lambda: stop.elapsed_s,
        hear=progress,
    )
    kept = conform(problem, running, plan_options.rules)
    unmoved = front.offer(kept, method=ZERO_MOVES)
    around = (
        AroundServed(problem, kept, options=options, trials=objective, front=front)
        if isinstance(objective, Trials)
        else Around(problem, kept, options=options, front=front)
    )
    bound = LeastBound(upper_bound_tokens_per_s(problem))
    fresh = None
    around.repair()
    if not stop.is_over():
        for placement in around.from_scratch(stop, bound):
            point = around.offer(placement, method=FROM_SCRATCH)
            fresh = fresh or point
            aligned = aligned_to(problem, placement, running, rules=plan_options.rules)
            around.offer(aligned, method=ALIGNED)
    around.search(fresh, bound, stop)
    pareto, budget = front.pareto(), options.budget_bytes
    within = [point for point in pareto if budget is None or point.moved_bytes <= budget]
    chosen, forecast = around.decide(budget, stop) or (within[-1] if within else unmoved, None)
    flows = [
        flow_under(plan_options, problem, point.placement)
        for point in {id(point): point for point in (*pareto, chosen)}.values()
    ]
    for flow in flows:
        check_flow(flow, problem=problem)
    return Replan(
        zero_moves=unmoved,
        from_scratch=fresh,
        pareto=pareto,
        chosen=chosen,
        upper_bound_tokens_per_s=max(
            bound.tokens_per_s, *(flow.value_tokens_per_s for flow in flows)
        ),
        forecast=forecast,
    )
