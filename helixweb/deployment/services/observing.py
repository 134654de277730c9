"""What agents and the coordinator report: kept, announced, and drawn conclusions from."""

from contextlib import nullcontext
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.deployment.announcing import announce, nudge_page
from helixweb.deployment.coordinators import with_others
from helixweb.deployment.models import (
    SERVING,
    Deployment,
    LatestReport,
    NodeAssignment,
    PhaseChange,
    Status,
)
from helixweb.deployment.pushing import wake, wake_coordinators
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.draining import follow_drains, note_empty
from helixweb.deployment.services.key_limits import book_spending
from helixweb.deployment.services.repairing import repair_after_commit
from helixweb.deployment.settling import settle
from helixweb.deployment.signals import report_received
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.checkpoint_reading import record_looks
from helixweb.inventory.services.presence import record_left, record_seen
from runtime.protocol.control import CoordinatorReport, Heartbeat, ObservedState, StageStats
from runtime.protocol.phases import Phase

MESSAGE_LENGTH = 2000
# Fields of a report that a deployment's status and page depend on; they seldom change.
_STANDING = (
    "generation",
    "serving",
    "message",
    "refused_generation",
    "coming_generation",
    "lost_nodes",
    "paused",
)
# Columns of an assignment that a heartbeat is compared with.
_READ = (
    "node_name", "instances", "observed_instances", "observed_generation", "phase", "message",
    "loaded_ratio", "deployment__generation", "deployment__status", "deployment__cluster",
)  # fmt: skip


def record_heartbeat(node: Node, heartbeat: Heartbeat, *, now: datetime) -> int:
    """Keep what the agent sees of itself; returns the generation it must be at.

    What it says of another generation than the present one is old news, and ignored.
    """
    observed = heartbeat.observed
    settled = True
    generation, assignment = _assignment(node)
    is_news = heartbeat.leaving or bool(heartbeat.looked)
    if assignment is not None and observed.generation == generation:
        is_news = is_news or any(_news_of(assignment, observed))
    # Nearly always there is none: then each statement is a transaction of its own, so that the
    # hundreds of nodes that report at once hold up a database with one writer for less time.
    with transaction.atomic() if is_news else nullcontext():
        if heartbeat.leaving:
            record_left(node, now)
        else:
            record_seen(node, now)
        if heartbeat.looked:
            record_looks(node, heartbeat.looked)
        if is_news:
            generation, assignment = _assignment(node)
        if observed.generation == generation:
            note_empty(node, observed, now=now)
        if assignment is not None and observed.generation == generation:
            settled = not _keep(assignment, heartbeat, now=now)
    # Until all is well, at every heartbeat and not only at a change: of two last nodes that report
    # in transactions that do not see each other, neither would find the other ready.
    settled = settled and not heartbeat.leaving
    if assignment is not None and not (settled and assignment.deployment.status == Status.READY):
        settle(assignment.deployment_id, now=now)
    return generation


def _assignment(node: Node) -> tuple[int, NodeAssignment | None]:
    """The generation that the cluster's processes must be at, and what the node has of it."""
    newest = Deployment.unscoped.filter(cluster=OuterRef("deployment__cluster"))
    rows = NodeAssignment.unscoped.select_related("deployment").only(*_READ)
    row = (
        rows.filter(node=node, deployment__cluster=node.cluster_id)
        .annotate(newest=Subquery(newest.order_by("-generation").values("generation")[:1]))
        .order_by("-deployment__generation")
        .first()
    )
    if row is None:
        return current_generation(node.cluster_id), None
    return row.newest, row if row.deployment.generation == row.newest else None


def record_report(coordinator: Coordinator, report: CoordinatorReport, *, now: datetime) -> int:
    """Store the newest report, and notify what makes metrics of the reports of all coordinators.

    Returns the generation that the coordinator must be at. What changes the status of a deployment,
    such as a lost stage, is concluded at once and pushed to its page.
    """
    told = report.model_dump(mode="json", exclude={"traces", "reach"})
    with transaction.atomic():
        before = LatestReport.unscoped.filter(coordinator=coordinator).first()
        is_news = before is None or any(before.says(field) != told[field] for field in _STANDING)
        record_seen(coordinator, now)
        book_spending(coordinator, report, before, now=now)
        LatestReport.unscoped.update_or_create(
            coordinator=coordinator, defaults={"report": told, "at": now}
        )
        joint = with_others(coordinator, report, now=now)
        report_received.send(
            sender=Coordinator,
            cluster_id=coordinator.cluster_id,
            report=joint,
            node_stats=_stage_stats(coordinator.cluster_id),
            at=now,
        )
        follow_change(coordinator.cluster_id, joint, now=now)
        follow_drains(now=now, cluster_id=coordinator.cluster_id)
    if is_news or report.lost_nodes or report.refused_generation is not None:
        serving = Deployment.unscoped.filter(cluster=coordinator.cluster_id, status__in=SERVING)
        for deployment in serving:
            settle(deployment.pk, now=now)
            if is_news:
                nudge_page(deployment)
                repair_after_commit(deployment.pk)
    return current_generation(coordinator.cluster_id)


def follow_change(cluster_id: int, report: CoordinatorReport, *, now: datetime) -> None:
    """Take from the coordinators' joint report whether the generation before has gone; for a moment
    it may serve on, so open pages of the deployment are told of every step."""
    rows = Deployment.unscoped.filter(
        cluster=cluster_id,
        generation=report.generation,
        status__in=SERVING,
        follows_generation__isnull=False,
        took_over_at__isnull=True,
    )
    deployment = rows.first()
    if deployment is None:
        return
    if not has_taken_over(report):
        nudge_page(deployment)
    elif rows.filter(pk=deployment.pk).update(took_over_at=now):
        # Nodes without layers now may hold some of what ran before.
        nodes = Node.unscoped.filter(cluster=cluster_id, joined_at__isnull=False)
        wake(*nodes.exclude(assignments__deployment=deployment).only("pk"))
        said = gettext_noop("%(name)s has taken over: nothing is left of what ran before.")
        announce(deployment, said, name=deployment.model_name)


def has_taken_over(report: CoordinatorReport) -> bool:
    """True if its generation serves, and no stage reports the one before."""
    if report.refused_generation == report.generation:
        return False
    return report.serving and report.coming_generation is None and report.leaving_generation is None


def _keep(assignment: NodeAssignment, heartbeat: Heartbeat, *, now: datetime) -> bool:
    """Write what is observed of the present generation; returns whether the phase is another."""
    observed = heartbeat.observed
    phase, message = observed.phase.value, observed.message[:MESSAGE_LENGTH]
    entered, progressed, moved = _news_of(assignment, observed)
    NodeAssignment.unscoped.filter(pk=assignment.pk).update(
        observed_generation=observed.generation,
        phase=phase,
        message=message,
        loaded_ratio=observed.loaded_ratio,
        stats=observed.stage.model_dump(mode="json") if observed.stage else None,
        weights=observed.weights.model_dump(mode="json") if observed.weights else {},
        observed_instances=_instances(observed),
        updated_at=now,
    )
    if moved and assignment.instances:
        wake_coordinators(assignment.deployment.cluster_id)
    if entered:
        PhaseChange.objects.create(assignment=assignment, phase=phase, message=message, at=now)
    if entered or progressed:
        events.emit(
            assignment.deployment.topic,
            "node-phase",
            {
                "deployment": assignment.deployment_id,
                "node": assignment.node_name,
                "phase": phase,
                "message": message,
                "loaded_ratio": observed.loaded_ratio,
            },
        )
    return entered


def _news_of(assignment: NodeAssignment, observed: ObservedState) -> tuple[bool, bool, bool]:
    """Whether the phase is another, what is shown of it, and where instances answer."""
    phase, message = observed.phase.value, observed.message[:MESSAGE_LENGTH]
    shown = assignment.message, assignment.loaded_ratio
    return (
        (assignment.observed_generation, assignment.phase) != (observed.generation, phase),
        shown != (message, observed.loaded_ratio),
        _doors(_instances(observed)) != _doors(assignment.observed_instances),
    )


def _instances(observed: ObservedState) -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in observed.instances]


def _doors(instances: list[dict[str, Any]]) -> dict[str, tuple[int | None, str]]:
    """Where they answer, and by which certificate they are known."""
    return {one["name"]: (one["port"], one.get("certificate", "")) for one in instances}


def _stage_stats(cluster_id: int) -> dict[str, StageStats]:
    rows = NodeAssignment.unscoped.filter(
        deployment__cluster=cluster_id,
        deployment__status__in=SERVING,
        phase=Phase.READY.value,
        stats__isnull=False,
    )
    return {
        name: StageStats.model_validate(stats)
        for name, stats in rows.values_list("node_name", "stats")
    }
