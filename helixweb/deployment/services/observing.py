"""Stores and announces reports of coordinators, and updates deployments from them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from helixweb.deployment.announcing import announce, nudge_page, wake
from helixweb.deployment.coordinators import with_others
from helixweb.deployment.models import SERVING, Deployment, LatestReport, NodeAssignment
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.draining import follow_drains
from helixweb.deployment.services.key_limits import book_spending
from helixweb.deployment.services.repairing import repair_after_commit
from helixweb.deployment.settling import settle
from helixweb.deployment.signals import report_received
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.presence import record_seen
from runtime.protocol.control import CoordinatorReport, StageStats
from runtime.protocol.phases import Phase

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


def record_report(coordinator: Coordinator, report: CoordinatorReport, *, now: datetime) -> int:
    """Store the newest report, and notify what makes metrics of the reports of all coordinators.

    Returns the generation that the coordinator must be at. What changes the status of a deployment,
    such as a lost stage, is concluded at once and pushed to its page.
    """
    document = report.model_dump(mode="json", exclude={"traces", "reach"})
    with transaction.atomic():
        before = LatestReport.unscoped.filter(coordinator=coordinator).first()
        is_news = (
            before is None
            or any(before.says(field) != document[field] for field in _STANDING)
            or _open(before.says("instances")) != _open(document["instances"])
        )
        record_seen(coordinator, now)
        book_spending(coordinator, report, before, now=now)
        LatestReport.unscoped.update_or_create(
            coordinator=coordinator, defaults={"report": document, "at": now}
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


def _open(instances: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The servers that take requests."""
    return {name for name, one in instances.items() if one["open"]}


def follow_change(cluster_id: int, report: CoordinatorReport, *, now: datetime) -> None:
    """Update from the joint report whether the previous generation has ended; it may serve for a
    while, so open pages of the deployment are notified of every step."""
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
