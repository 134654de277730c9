"""What agents and the coordinator report: kept, announced, and drawn conclusions from."""

from datetime import datetime

from django.db import transaction

from helixweb.common import events
from helixweb.deployment.models import (
    SERVING,
    Deployment,
    LatestReport,
    NodeAssignment,
    PhaseChange,
)
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.settling import settle
from helixweb.deployment.signals import report_received
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services import record_seen
from runtime.protocol.control import CoordinatorReport, Heartbeat, Phase, StageStats


def record_heartbeat(node: Node, heartbeat: Heartbeat, *, now: datetime) -> int:
    """Keep what the agent sees of itself; returns the generation it shall be at.

    What it says of another generation than the present one is old news, and ignored.
    """
    observed = heartbeat.observed
    with transaction.atomic():
        record_seen(node, now)
        generation = current_generation(node.cluster_id)
        assignment = (
            NodeAssignment.objects.select_related("deployment")
            .filter(node=node, deployment__generation=generation, deployment__cluster=node.cluster)
            .first()
        )
        if assignment is not None and observed.generation == generation:
            _keep(assignment, heartbeat, now=now)
    if assignment is not None:
        settle(assignment.deployment_id, now=now)
    return generation


def record_report(coordinator: Coordinator, report: CoordinatorReport, *, now: datetime) -> int:
    """Keep the newest report, and tell whoever makes metrics of it.

    Returns the generation the coordinator shall be at.
    """
    with transaction.atomic():
        record_seen(coordinator, now)
        LatestReport.objects.update_or_create(
            coordinator=coordinator,
            defaults={"report": report.model_dump(mode="json"), "at": now},
        )
        report_received.send(
            sender=Coordinator,
            cluster_id=coordinator.cluster_id,
            report=report,
            node_stats=_stage_stats(coordinator.cluster_id),
            at=now,
        )
    return current_generation(coordinator.cluster_id)


def _keep(assignment: NodeAssignment, heartbeat: Heartbeat, *, now: datetime) -> None:
    observed = heartbeat.observed
    fresh = assignment.observed_generation != observed.generation
    entered = fresh or assignment.phase != observed.phase.value
    progressed = (assignment.message, assignment.loaded_ratio) != (
        observed.message,
        observed.loaded_ratio,
    )
    stats = observed.stage.model_dump(mode="json") if observed.stage else None
    NodeAssignment.objects.filter(pk=assignment.pk).update(
        observed_generation=observed.generation,
        phase=observed.phase.value,
        message=observed.message,
        loaded_ratio=observed.loaded_ratio,
        stats=stats,
        updated_at=now,
    )
    if entered:
        PhaseChange.objects.create(
            assignment=assignment, phase=observed.phase.value, message=observed.message, at=now
        )
    if entered or progressed:
        events.emit(
            assignment.deployment.topic,
            "node-phase",
            {
                "deployment": assignment.deployment_id,
                "node": assignment.node_name,
                "phase": observed.phase.value,
                "message": observed.message,
                "loaded_ratio": observed.loaded_ratio,
            },
        )


def _stage_stats(cluster_id: int) -> dict[str, StageStats]:
    deployment = Deployment.objects.filter(cluster=cluster_id, status__in=SERVING).first()
    if deployment is None:
        return {}
    rows = deployment.assignments.filter(phase=Phase.READY.value, stats__isnull=False)
    return {row.node_name: StageStats.model_validate(row.stats) for row in rows}
