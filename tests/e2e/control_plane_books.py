"""Is the database of a site in order after a person's day of work?"""

import json
from collections.abc import Iterator
from typing import Any

from django.db import connection

from helixweb.common.jobs import MAX_ATTEMPTS
from helixweb.common.models import FINISHED, Event
from helixweb.deployment.models import LIVE, Deployment, Status
from helixweb.inventory.models import Change, Cluster
from helixweb.planning.models import Explanation, Plan, PlanRun, Simulation
from planner.serialization import plan_from_dict, problem_from_dict
from runtime.protocol.control import ServingPlan, StageAssignment


def main(diary_text: str) -> dict[str, Any]:
    """From a person's diary as JSON: what is wrong, and the ids of events."""
    diary = json.loads(diary_text)
    faults = [*_database(), *_tasks(), *_deployments(), *_change_log(diary)]
    events = Event.objects.filter(topic__in=diary["topics"]).order_by("pk")
    return {"faults": faults, "events": list(events.values_list("pk", flat=True))}


def _database() -> Iterator[str]:
    connection.check_constraints()  # foreign keys, where the database has not looked at once
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA integrity_check")
            (found,) = cursor.fetchone()
        if found != "ok":
            yield f"the database is damaged: {found}"


def _tasks() -> Iterator[str]:
    """Every one has ended once."""
    for kind in (PlanRun, Explanation, Simulation):
        for row in kind.unscoped.all():
            name = f"{kind.__name__} {row.pk}"
            if row.status not in FINISHED or row.finished_at is None:
                yield f"{name} is {row.status}"
            if row.lease_expires_at is not None:
                yield f"{name} has ended and holds a lease"
            if row.status == PlanRun.Status.FAILED and row.attempt < MAX_ATTEMPTS:
                yield f"{name} failed at attempt {row.attempt}: {row.error}"
    for run in PlanRun.unscoped.all():
        plans = Plan.unscoped.filter(run=run).count()
        wanted = 1 if run.status == PlanRun.Status.SUCCEEDED else 0
        if plans != wanted:
            yield f"run {run.pk} is {run.status} and has {plans} plans"
        late = run.incumbents.filter(attempt__gt=run.attempt).count()
        if late:
            yield f"run {run.pk} has {late} incumbents of attempts that never were"
    for plan in Plan.unscoped.all():
        document, problem = plan_from_dict(plan.document), problem_from_dict(plan.problem)
        if not set(document.placement.layers) <= {node.name for node in problem.cluster.nodes}:
            yield f"plan {plan.pk} places layers on nodes that its problem has not"
        for kind in (Explanation, Simulation):
            count = kind.unscoped.filter(plan=plan).count()
            if count != 1:
                yield f"plan {plan.pk} has {count} of {kind.__name__}"


def _deployments() -> Iterator[str]:
    for cluster in Cluster.unscoped.all():
        rows = list(Deployment.unscoped.filter(cluster=cluster).order_by("pk"))
        live = [row for row in rows if row.status in LIVE]
        if len(live) > 1:
            yield f"cluster {cluster} has {len(live)} deployments"
        if rows != sorted(rows, key=lambda row: row.generation):
            yield f"cluster {cluster}: generations went back"
        for row in live:
            if row.pushed_at is None:
                yield f"{row} was never pushed"
        for row in rows:
            serving = ServingPlan.model_validate(row.serving_plan)
            assigned = {each.node_name: each.desired for each in row.assignments.all()}
            if assigned.keys() != serving.placement.layers.keys():
                yield f"{row}: assignments of {sorted(assigned)} for {serving.placement}"
            for desired in assigned.values():
                StageAssignment.model_validate(desired)


def _change_log(diary: dict[str, Any]) -> Iterator[str]:
    """Each edit that was accepted once, and no other; each deployment's beginning and end."""
    for kind, row, field, value in diary["edits"]:
        lines = Change.unscoped.filter(kind=kind, row_id=row, action=Change.Action.CHANGED)
        count = sum(str(line.after.get(field)) == value for line in lines)
        if count != 1:
            yield f"{field} = {value} of {kind} {row} is {count} times in the change log"
    for action, done in (("added", diary["added"]), ("removed", diary["removed"])):
        for kind, name in done:
            count = Change.unscoped.filter(kind=kind, name=name, action=action).count()
            if count != 1:
                yield f"{kind} {name} was {action} {count} times by the change log"
    changed = Change.unscoped.filter(action=Change.Action.CHANGED)
    edited = changed.filter(actor="ada").exclude(kind="deployment").count()
    if edited != len(diary["edits"]):
        yield f"the change log has {edited} edits, the diary {len(diary['edits'])}"
    for row in Deployment.unscoped.all():
        lines = Change.unscoped.filter(kind="deployment", row_id=row.pk)
        made = lines.filter(action=Change.Action.ADDED).count()
        superseded = sum(line.after.get("status") == Status.SUPERSEDED for line in lines)
        if made != 1 or superseded != (row.status == Status.SUPERSEDED):
            yield f"{row}: made {made}, superseded {superseded} times by the change log"
