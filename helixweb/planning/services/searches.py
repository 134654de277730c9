"""The search a plan run asks for: for flow, for what survives a loss, or around a running plan."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from helixweb.charts.quantities import bytes_text
from helixweb.planning import incumbents
from helixweb.planning.models import Plan, PlanRun, Replan
from helixweb.planning.options import options_from_json
from planner.bounds import upper_bound_tokens_per_s
from planner.checked_plan import checked_plan
from planner.domain import plan as domain
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.base import CancelToken, Progress
from planner.plan_instances import plan_by_method
from planner.plan_options import PlanOptions
from planner.planning import NoPlacementFound
from planner.replanning import ReplanOptions, ReplanPoint, replan
from planner.robust import compute_robust_plan
from planner.serialization import plan_from_dict, problem_from_dict

SURVIVING = "surviving one loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checked plan; of a replanning, also the answers that none beats in flow and bytes."""

    plan: domain.Plan
    points: tuple[ReplanPoint, ...] = ()


def search_for(run: PlanRun, *, progress: Progress, cancel: CancelToken) -> Found:
    """What the run asks for; goes on from earlier attempts and from the run it continues.

    Raises PlannerError.
    """
    problem = problem_from_dict(run.problem)
    options = options_from_json(run.options)
    if hasattr(run, "replan"):
        return _replanned(problem, run.replan, options=options, progress=progress, cancel=cancel)
    best_known = incumbents.best_incumbent(run.pk)
    if best_known is None and run.continues_id is not None:
        best_known = incumbents.best_incumbent(run.continues_id)
    start = _start_of(run)
    if not run.survive_one_loss:
        plan = plan_by_method(
            problem,
            options=options,
            progress=progress,
            cancel=cancel,
            best_known=best_known,
            start=start,
        )
        return Found(plan=plan)
    started_s = time.monotonic()
    robust = compute_robust_plan(
        problem,
        options=options,
        start=best_known.placement if best_known else start,
        progress=progress,
        cancel=cancel,
    )
    plan = plan_of(
        problem,
        robust.placement,
        options=options,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(problem),
        placer=SURVIVING,
        is_cancelled=cancel.is_cancelled(),
        elapsed_s=time.monotonic() - started_s,
    )
    return Found(plan=plan)


def _start_of(run: PlanRun) -> Placement | None:
    if run.start_plan_id is None:
        return None
    document = Plan.unscoped.values_list("document", flat=True).get(pk=run.start_plan_id)
    return plan_from_dict(document).placement


def _replanned(
    problem: Problem,
    asked: Replan,
    *,
    options: PlanOptions,
    progress: Progress,
    cancel: CancelToken,
) -> Found:
    running = plan_from_dict(asked.running_plan.document).placement
    bound = upper_bound_tokens_per_s(problem)
    best_flow = 0.0

    def report(point: ReplanPoint) -> None:
        nonlocal best_flow
        is_within = asked.budget_bytes is None or point.moved_bytes <= asked.budget_bytes
        if is_within and point.flow_tokens_per_s > best_flow:
            best_flow = point.flow_tokens_per_s
            progress(
                domain.Incumbent(
                    elapsed_s=point.elapsed_s,
                    flow_tokens_per_s=point.flow_tokens_per_s,
                    upper_bound_tokens_per_s=bound,
                    placer=point.method,
                    placement=point.placement,
                )
            )

    found = replan(
        problem,
        running,
        options=ReplanOptions(
            plan=options, time_limit_s=options.time_limit_s, budget_bytes=asked.budget_bytes
        ),
        progress=report,
        cancel=cancel,
    )
    chosen = found.chosen
    if chosen.flow_tokens_per_s <= 0:
        raise NoPlacementFound(_too_small(asked.budget_bytes, found.pareto))
    plan = plan_of(
        problem,
        chosen.placement,
        options=options,
        upper_bound_tokens_per_s=min(bound, found.upper_bound_tokens_per_s),
        placer=chosen.method,
        is_cancelled=cancel.is_cancelled(),
        elapsed_s=chosen.elapsed_s,
    )
    return Found(plan=plan, points=found.pareto)


def _too_small(budget_bytes: float | None, pareto: Sequence[ReplanPoint]) -> str:
    enough = [point.moved_bytes for point in pareto if point.flow_tokens_per_s > 0]
    if budget_bytes is None or not enough:
        return (
            "no placement that carries any flow was found around the running plan; give the "
            "search more time, or compute a new plan"
        )
    return (
        f"no placement that carries any flow was found within {bytes_text(budget_bytes)} of moved "
        f"layers; {bytes_text(min(enough))} is the least that was found to do, so allow that much"
    )


def plan_of(
    problem: Problem,
    placement: Placement,
    *,
    options: PlanOptions,
    upper_bound_tokens_per_s: float,
    placer: str,
    is_cancelled: bool,
    elapsed_s: float,
) -> domain.Plan:
    """A heuristic's placement as a checked plan. Raises InvalidPlacement and FlowCheckFailed."""
    return checked_plan(
        problem,
        placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s,
        placer=placer,
        solver="none",
        stop_reason="cancelled" if is_cancelled else "heuristic",
        elapsed_s=elapsed_s,
    )
