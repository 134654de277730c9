"""What one attempt at a plan run writes, fenced by its number: a zombie changes nothing.

Every function raises LostLease when the run belongs to a later attempt or was finished.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext_noop

from helixweb.common import events, leases
from helixweb.common.models import FINISHED
from helixweb.common.sentences import sentence
from helixweb.planning import turns
from helixweb.planning.models import Explanation, Incumbent, Plan, PlanRun, Replan, Simulation
from helixweb.planning.objectives import objective_figure
from planner.domain import plan as domain
from planner.domain.placement import LayerRange, Placement
from planner.replan import ReplanPoint
from planner.serialization import plan_to_dict

Status = PlanRun.Status
_ENDED = {
    Status.SUCCEEDED: gettext_noop("Plan run %(id)s succeeded."),
    Status.FAILED: gettext_noop("Plan run %(id)s failed."),
    Status.CANCELLED: gettext_noop("Plan run %(id)s was cancelled."),
}
# A run that has taken its worker down this often is not tried again.
MAX_ATTEMPTS = 3


def claim(*, run_id: int, now: datetime) -> int | None:
    """Take the run for a new attempt; None if it is owned, finished, or must wait for its turn."""
    with transaction.atomic():
        attempt = turns.claim(PlanRun, task_id=run_id, now=now)
        if attempt is not None:
            _announce(PlanRun.objects.only("pk", "cluster_id").get(pk=run_id), Status.RUNNING)
    return attempt


def best_incumbent(run_id: int) -> domain.Incumbent | None:
    """What earlier attempts reached: the best placement with the tightest bound."""
    best = (
        Incumbent.objects.filter(run_id=run_id)
        .order_by(F("objective_value").desc(nulls_last=True), "-flow_tokens_per_s", "-pk")
        .first()
    )
    if best is None:
        return None
    bounds = Incumbent.objects.filter(run_id=run_id, upper_bound_tokens_per_s__isnull=False)
    bound = bounds.order_by("upper_bound_tokens_per_s").values_list(
        "upper_bound_tokens_per_s", flat=True
    )
    return domain.Incumbent(
        elapsed_s=best.elapsed_s,
        flow_tokens_per_s=best.flow_tokens_per_s,
        upper_bound_tokens_per_s=bound.first() or math.inf,
        placer=best.placer,
        placement=placement_of(best.placement, best.components),
        objective_value=best.objective_value,
    )


def record_incumbents(
    *, run_id: int, attempt: int, incumbents: Sequence[domain.Incumbent], elapsed_before_s: float
) -> None:
    """Write incumbents, oldest first; the attempt began when the run was `elapsed_before_s` old."""
    if not incumbents:
        return
    last = incumbents[-1]
    with transaction.atomic():
        owned = PlanRun.objects.filter(pk=run_id, attempt=attempt, status=Status.RUNNING)
        if not owned.update(
            flow_tokens_per_s=last.flow_tokens_per_s,
            upper_bound_tokens_per_s=_finite(last.upper_bound_tokens_per_s),
            objective_value=last.objective_value,
        ):
            raise leases.LostLease(f"PlanRun {run_id}: attempt {attempt} lost its lease")
        goal = owned.only("options", "survive_one_loss").get().goal
        for incumbent in incumbents:
            row = Incumbent.objects.create(
                run_id=run_id,
                attempt=attempt,
                elapsed_s=elapsed_before_s + incumbent.elapsed_s,
                flow_tokens_per_s=incumbent.flow_tokens_per_s,
                upper_bound_tokens_per_s=_finite(incumbent.upper_bound_tokens_per_s),
                objective_value=incumbent.objective_value,
                placer=incumbent.placer,
                placement=incumbent.placement.as_lists(),
                components=[sorted(names) for names in incumbent.placement.components],
            )
            figure = objective_figure(goal, row.objective_value)
            events.emit(
                f"plan-run:{run_id}",
                "incumbent",
                {
                    "id": row.pk,
                    "run": run_id,
                    "attempt": attempt,
                    "elapsed_s": row.elapsed_s,
                    "flow_tokens_per_s": row.flow_tokens_per_s,
                    "upper_bound_tokens_per_s": row.upper_bound_tokens_per_s,
                    "gap": row.gap,
                    "objective_value": row.objective_value,
                    "figure": {
                        "text": figure.text,
                        "unit": figure.unit,
                        "plotted": figure.plotted,
                    },
                    "placer": row.placer,
                },
            )


def finish_with_plan(
    *,
    run: PlanRun,
    attempt: int,
    plan: domain.Plan,
    now: datetime,
    points: Sequence[ReplanPoint] = (),
) -> Plan:
    """End the run with its plan: succeeded, or cancelled with the best so far.

    `points` are a replanning's answers. What explains the plan is queued with it. The flow that
    survives a loss is the last incumbent's, and so is what instances are predicted to write.
    """
    status = Status.CANCELLED if plan.stop_reason == "cancelled" else Status.SUCCEEDED
    with transaction.atomic():
        leases.finish(
            PlanRun,
            task_id=run.pk,
            attempt=attempt,
            status=status,
            now=now,
            solver=plan.solver,
            flow_tokens_per_s=plan.flow.value_tokens_per_s,
            upper_bound_tokens_per_s=plan.upper_bound_tokens_per_s,
            objective_value=plan.forecast.value
            if plan.forecast
            else F("objective_value")
            if run.survive_one_loss or plan.instances
            else None,
        )
        if points:
            Replan.objects.filter(run=run).update(points=[point_to_json(point) for point in points])
        row = store_plan(run, plan)
        _announce(run, status, plan_id=row.pk)
    return row


def store_plan(run: PlanRun, plan: domain.Plan) -> Plan:
    """The plan of a run that has ended, and the tasks of explaining and of simulating it."""
    row = Plan.objects.create(
        cluster_id=run.cluster_id,
        model_id=run.model_id,
        run=run,
        document=plan_to_dict(plan),
        problem=run.problem,
        flow_tokens_per_s=plan.flow.value_tokens_per_s,
        upper_bound_tokens_per_s=plan.upper_bound_tokens_per_s,
        hops=plan.hops,
    )
    Explanation.objects.create(plan=row)
    Simulation.objects.create(plan=row, created_by_id=run.created_by_id)
    return row


def point_to_json(point: ReplanPoint) -> dict[str, Any]:
    """One answer of a replanning as `Replan.points` keeps it; `placement_of_point` reads it."""
    return {
        "placement": point.placement.as_lists(),
        "components": [sorted(names) for names in point.placement.components],
        "flow_tokens_per_s": point.flow_tokens_per_s,
        "moved_bytes": point.moved_bytes,
        "method": point.method,
    }


def placement_of_point(point: dict[str, Any]) -> Placement:
    """An answer's placement; answers kept before there were components have one component."""
    return placement_of(point["placement"], point.get("components", ()))


def placement_of(
    layers: Mapping[str, Sequence[int]], components: Iterable[Iterable[str]]
) -> Placement:
    """As rows keep it: [first, end] of every node, and the nodes of every component."""
    return Placement(
        layers={name: LayerRange(first=first, end=end) for name, (first, end) in layers.items()},
        components=tuple(frozenset(names) for names in components),
    )


def finish_without_plan(
    *, run: PlanRun, attempt: int, status: PlanRun.Status, error: str, now: datetime
) -> None:
    """End the run failed, or cancelled before anything was found."""
    with transaction.atomic():
        leases.finish(PlanRun, task_id=run.pk, attempt=attempt, status=status, now=now, error=error)
        _announce(run, status, error=error)


def record_finished_run(run: PlanRun, plan: domain.Plan, *, now: datetime) -> PlanRun:
    """Store a run that was found otherwise than by its own search, with its plan."""
    run.status = Status.SUCCEEDED
    run.solver = plan.solver
    run.flow_tokens_per_s = plan.flow.value_tokens_per_s
    run.upper_bound_tokens_per_s = plan.upper_bound_tokens_per_s
    run.started_at = run.finished_at = now
    run.save()
    store_plan(run, plan)
    return run


def _announce(run: PlanRun, status: PlanRun.Status, **data: int | str) -> None:
    content = {"run": run.pk, "status": status.value, **data}
    events.emit(run.topic, "plan-run", content)
    if status in FINISHED:
        said = sentence(_ENDED[status], id=run.pk)
        events.emit(f"cluster:{run.cluster_id}", "event", said)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
