"""The work of a plan run: for flow, for what survives a loss, or around a running plan.

The planner runs in this thread, lease and database are in another.
"""

import queue
import time
from collections.abc import Sequence
from dataclasses import replace

from django.db import transaction
from django.utils import timezone

import planner
from helixweb.charts.chart import bytes_text
from helixweb.common import jobs
from helixweb.common.jobs import Lease
from helixweb.planning import incumbents
from helixweb.planning.models import Plan, PlanRun, Replan
from helixweb.planning.options import options_from_json
from planner import upper_bound_tokens_per_s
from planner.serialization import plan_from_dict, problem_from_dict

Status = PlanRun.Status
Found = tuple[planner.Plan, Sequence[planner.ReplanPoint]]
# Bounds improve many times a second; one row a second is enough for the chart.
BOUND_INTERVAL_S = 1.0
ACCEPTED = "accepted"


def solve(run: PlanRun, lease: Lease) -> jobs.Outcome:
    """Search as the run asks; better placements are written as they are found."""
    recorder = Recorder(run, lease)
    lease.write = recorder.write
    plan, points = search_for(run, progress=recorder.report, cancel=lease)
    run.refresh_from_db(fields=["accept_requested"])
    if plan.stop_reason == "cancelled" and run.accept_requested:
        plan = replace(plan, stop_reason=ACCEPTED)
    return incumbents.outcome_of(run, plan, points=points)


def accept_best_so_far(run: PlanRun) -> bool:
    """End the search as a success with the best it has; False if it has none or does not run."""
    with transaction.atomic():
        accepted = bool(
            PlanRun.unscoped.filter(
                pk=run.pk, status=Status.RUNNING, flow_tokens_per_s__isnull=False
            ).update(cancel_requested=True, accept_requested=True)
        )
        if accepted:
            run.refresh_from_db(fields=["status", "cancel_requested", "accept_requested"])
            jobs.announce(run, run.status, cancel_requested=True)
    return accepted


class Recorder:
    """The search's `Progress`: its callbacks queue, the lease's thread writes."""

    def __init__(self, run: PlanRun, lease: Lease) -> None:
        self._run_id, self._lease = run.pk, lease
        self._elapsed_before_s = run.age_s(now=timezone.now())
        self._reported: queue.SimpleQueue[planner.Incumbent] = queue.SimpleQueue()
        self._to_write: list[planner.Incumbent] = []
        self._better_bound: planner.Incumbent | None = None
        self._best_value = 0.0
        self._written_s = -BOUND_INTERVAL_S

    def report(self, incumbent: planner.Incumbent, /) -> None:
        self._reported.put(incumbent)

    def write(self, ended: bool) -> None:
        """Write better placements at once, mere bounds once in `BOUND_INTERVAL_S`."""
        while not self._reported.empty():
            incumbent = self._reported.get()
            value = incumbent.objective_value
            value = incumbent.flow_tokens_per_s if value is None else value
            if value > self._best_value:
                self._best_value = value
                self._to_write.append(incumbent)
                self._better_bound = None
            else:
                self._better_bound = incumbent
        now_s = time.monotonic()
        if self._better_bound and (ended or now_s - self._written_s >= BOUND_INTERVAL_S):
            self._to_write.append(self._better_bound)
            self._better_bound = None
        if self._to_write:
            incumbents.record_incumbents(
                self._lease,
                self._run_id,
                self._to_write,
                elapsed_before_s=self._elapsed_before_s,
            )
            self._to_write = []
            self._written_s = now_s


def search_for(run: PlanRun, *, progress: planner.Progress, cancel: planner.CancelToken) -> Found:
    """Search a plan and check it; of a replanning, also the Pareto front in flow and bytes.

    Continues from earlier attempts and from the run it continues. Raises PlannerError.
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
        plan = planner.plan_by_method(
            problem,
            options=options,
            progress=progress,
            cancel=cancel,
            best_known=best_known,
            start=start,
        )
        return plan, ()
    robust = planner.compute_robust_plan(
        problem,
        options=options,
        start=best_known.placement if best_known else start,
        progress=progress,
        cancel=cancel,
    )
    return robust.plan, ()


def _start_of(run: PlanRun) -> planner.Placement | None:
    if run.start_plan_id is None:
        return None
    document = Plan.unscoped.values_list("document", flat=True).get(pk=run.start_plan_id)
    return plan_from_dict(document).placement


def _replanned(
    problem: planner.Problem,
    asked: Replan,
    *,
    options: planner.PlanOptions,
    progress: planner.Progress,
    cancel: planner.CancelToken,
) -> Found:
    running = plan_from_dict(asked.running_plan.document).placement
    bound = upper_bound_tokens_per_s(problem)
    best_value = 0.0

    def report(point: planner.ReplanPoint) -> None:
        nonlocal best_value
        is_within = asked.budget_bytes is None or point.moved_bytes <= asked.budget_bytes
        if is_within and point.value > best_value:
            best_value = point.value
            progress(
                planner.Incumbent(
                    elapsed_s=point.elapsed_s,
                    flow_tokens_per_s=point.flow_tokens_per_s,
                    upper_bound_tokens_per_s=bound,
                    placer=point.method,
                    placement=point.placement,
                    objective_value=point.score.objective_value,
                )
            )

    found = planner.replan(
        problem,
        running,
        options=planner.ReplanOptions(
            plan=options, time_limit_s=options.time_limit_s, budget_bytes=asked.budget_bytes
        ),
        progress=report,
        cancel=cancel,
    )
    chosen = found.chosen
    if chosen.flow_tokens_per_s <= 0:
        raise planner.NoPlacementFound(_too_small(asked.budget_bytes, found.pareto))
    plan = incumbents.plan_of(
        problem,
        chosen.placement,
        options=options,
        upper_bound_tokens_per_s=min(bound, found.upper_bound_tokens_per_s),
        placer=chosen.method,
        is_cancelled=cancel.is_cancelled(),
        elapsed_s=chosen.elapsed_s,
    )
    return replace(plan, forecast=found.forecast), found.pareto


def _too_small(budget_bytes: float | None, pareto: Sequence[planner.ReplanPoint]) -> str:
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
