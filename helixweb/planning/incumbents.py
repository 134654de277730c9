"""Results of a search: its incumbents, its plan, and the answers of a replanning."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F

import planner
from helixweb.common import events, jobs
from helixweb.common.jobs import Lease
from helixweb.planning.models import Explanation, Incumbent, Plan, PlanRun, Replan, Simulation
from planner import LayerRange, Placement, ReplanPoint
from planner.checked_plan import checked_plan
from planner.serialization import plan_to_dict

Status = PlanRun.Status
_IN_EVENTS = (
    "attempt", "elapsed_s", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap",
    "objective_value", "objective_bound", "objective_gap", "placer",
)  # fmt: skip


def best_incumbent(run_id: int) -> planner.Incumbent | None:
    """Result of earlier attempts: the best placement with the tightest bound."""
    best = (
        Incumbent.unscoped.filter(run_id=run_id)
        .order_by(F("objective_value").desc(nulls_last=True), "-flow_tokens_per_s", "-pk")
        .first()
    )
    if best is None:
        return None
    bounds = Incumbent.unscoped.filter(run_id=run_id, upper_bound_tokens_per_s__isnull=False)
    bound = bounds.order_by("upper_bound_tokens_per_s").values_list(
        "upper_bound_tokens_per_s", flat=True
    )
    return planner.Incumbent(
        elapsed_s=best.elapsed_s,
        flow_tokens_per_s=best.flow_tokens_per_s,
        upper_bound_tokens_per_s=bound.first() or math.inf,
        placer=best.placer,
        placement=placement_of(best.placement, best.components),
        objective_value=best.objective_value,
    )


def record_incumbents(
    lease: Lease, run_id: int, incumbents: Sequence[planner.Incumbent], *, elapsed_before_s: float
) -> None:
    """Write incumbents, oldest first; the attempt began when the run was `elapsed_before_s` old.

    Raises LostLease when the run belongs to a later attempt or was finished.
    """
    if not incumbents:
        return
    last = incumbents[-1]
    with transaction.atomic():
        lease.update(
            flow_tokens_per_s=last.flow_tokens_per_s,
            upper_bound_tokens_per_s=_finite(last.upper_bound_tokens_per_s),
            objective_value=last.objective_value,
            objective_bound=last.objective_bound,
        )
        run = PlanRun.unscoped.only("options", "survive_one_loss").get(pk=run_id)
        for incumbent in incumbents:
            row = Incumbent.objects.create(
                run_id=run_id,
                attempt=lease.attempt,
                elapsed_s=elapsed_before_s + incumbent.elapsed_s,
                flow_tokens_per_s=incumbent.flow_tokens_per_s,
                upper_bound_tokens_per_s=_finite(incumbent.upper_bound_tokens_per_s),
                objective_value=incumbent.objective_value,
                objective_bound=incumbent.objective_bound,
                placer=incumbent.placer,
                **_placement_to_json(incumbent.placement),
            )
            figure = run.figure_of(row.objective_value)
            said = {name: getattr(row, name) for name in _IN_EVENTS}
            said |= {"id": row.pk, "run": run_id}
            said["figure"] = {name: getattr(figure, name) for name in ("text", "unit", "plotted")}
            events.emit(f"plan-run:{run_id}", "incumbent", said)


def outcome_of(
    run: PlanRun, plan: planner.Plan, *, points: Sequence[ReplanPoint] = ()
) -> jobs.Outcome:
    """The outcome of a run with a plan: succeeded, or cancelled with the best so far.

    `points` are a replanning's answers. The value left after a loss and the predicted output of
    instances are those of the last incumbent.
    """
    objective: Any = None if plan.forecast is None else plan.forecast.value
    bound: Any = None if plan.forecast is None else plan.forecast.upper_bound
    if run.survive_one_loss or plan.instances:
        objective, bound = F("objective_value"), F("objective_bound")

    def store() -> dict[str, Any]:
        if points:
            Replan.unscoped.filter(run=run).update(
                points=[point_to_json(point) for point in points]
            )
        return {"plan_id": store_plan(run, plan).pk}

    return jobs.Outcome(
        status=Status.CANCELLED if plan.stop_reason == "cancelled" else Status.SUCCEEDED,
        columns={
            **_found(plan),
            "objective_value": objective,
            "objective_bound": bound,
        },
        store=store,
    )


def store_plan(run: PlanRun, plan: planner.Plan) -> Plan:
    """The plan of a run that has ended, and the jobs of explaining and of simulating it."""
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
    jobs.wake(Explanation.objects.create(plan=row))
    jobs.wake(Simulation.objects.create(plan=row, created_by_id=run.created_by_id))
    return row


def point_to_json(point: ReplanPoint) -> dict[str, Any]:
    """One answer of a replanning as stored in `Replan.points`; `placement_of_point` reads it."""
    return {
        **_placement_to_json(point.placement),
        "flow_tokens_per_s": point.flow_tokens_per_s,
        "objective_value": point.score.objective_value,
        "moved_bytes": point.moved_bytes,
        "method": point.method,
    }


def placement_of_point(point: dict[str, Any]) -> Placement:
    """An answer's placement; answers of releases without components have one component."""
    return placement_of(point["placement"], point.get("components", ()))


def placement_of(
    layers: Mapping[str, Sequence[int]], components: Iterable[Iterable[str]]
) -> Placement:
    """A placement from its JSON: [first, end] of every node, and the nodes of every component."""
    return Placement(
        layers={name: LayerRange(first=first, end=end) for name, (first, end) in layers.items()},
        components=tuple(frozenset(names) for names in components),
    )


def record_finished_run(run: PlanRun, plan: planner.Plan, *, now: datetime) -> PlanRun:
    """Store a run that was found otherwise than by its own search, with its plan."""
    for name, value in _found(plan).items():
        setattr(run, name, value)
    run.objective_value = None if plan.forecast is None else plan.forecast.value
    run.status = Status.SUCCEEDED
    run.started_at = run.finished_at = now
    run.save()
    store_plan(run, plan)
    return run


def _found(plan: planner.Plan) -> dict[str, Any]:
    """Columns of a run."""
    return {
        "solver": plan.solver,
        "flow_tokens_per_s": plan.flow.value_tokens_per_s,
        "upper_bound_tokens_per_s": plan.upper_bound_tokens_per_s,
    }


def _placement_to_json(placement: Placement) -> dict[str, Any]:
    return {
        "placement": placement.as_lists(),
        "components": [sorted(names) for names in placement.components],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def plan_of(
    problem: planner.Problem,
    placement: planner.Placement,
    *,
    options: planner.PlanOptions,
    upper_bound_tokens_per_s: float,
    placer: str,
    is_cancelled: bool,
    elapsed_s: float,
) -> planner.Plan:
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
