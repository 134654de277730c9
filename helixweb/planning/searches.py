"""The search a plan run asks for: for flow, or for flow that survives the loss of a node."""

import time

from helixweb.planning import attempts
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_from_json
from planner.bounds import upper_bound_tokens_per_s
from planner.checked_plan import checked_plan
from planner.compute_plan import PlanOptions, compute_plan
from planner.domain import plan as domain
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import CancelToken, Progress
from planner.robust import compute_robust_plan
from planner.serialization import plan_from_dict, problem_from_dict

SURVIVING = "surviving one loss"


def search_for(run: PlanRun, *, progress: Progress, cancel: CancelToken) -> domain.Plan:
    """The run's plan, checked; goes on from earlier attempts and from the run it continues.

    Raises PlannerError.
    """
    problem = problem_from_dict(run.problem)
    options = options_from_json(run.options)
    best_known = attempts.best_incumbent(run.pk)
    if best_known is None and run.continues_id is not None:
        best_known = attempts.best_incumbent(run.continues_id)
    start = _start_of(run)
    if run.survive_one_loss:
        if best_known is not None:
            start = best_known.placement
        return _surviving_plan(
            problem, options=options, start=start, progress=progress, cancel=cancel
        )
    return compute_plan(
        problem,
        options=options,
        progress=progress,
        cancel=cancel,
        best_known=best_known,
        start=start,
    )


def _start_of(run: PlanRun) -> Placement | None:
    if run.start_plan_id is None:
        return None
    document = Plan.objects.values_list("document", flat=True).get(pk=run.start_plan_id)
    return plan_from_dict(document).placement


def _surviving_plan(
    problem: Problem,
    *,
    options: PlanOptions,
    start: Placement | None,
    progress: Progress,
    cancel: CancelToken,
) -> domain.Plan:
    """Its incumbents are not told of while it searches: only the end is reported."""
    started_s = time.monotonic()
    bound = upper_bound_tokens_per_s(problem)
    robust = compute_robust_plan(problem, options=options, start=start, cancel=cancel)
    plan = checked_plan(
        problem,
        robust.placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
        upper_bound_tokens_per_s=bound,
        placer=SURVIVING,
        solver="none",
        stop_reason="cancelled" if cancel.is_cancelled() else "heuristic",
        elapsed_s=time.monotonic() - started_s,
    )
    progress(
        domain.Incumbent(
            elapsed_s=plan.elapsed_s,
            flow_tokens_per_s=plan.flow.value_tokens_per_s,
            upper_bound_tokens_per_s=bound,
            placer=plan.placer,
            placement=plan.placement,
        )
    )
    return plan
