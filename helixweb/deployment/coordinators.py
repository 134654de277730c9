"""The coordinators of a cluster: which can be heard, and what they told last. Reads only."""

import logging
from datetime import datetime

from django.db.models import Exists, Q, QuerySet
from pydantic import ValidationError

from helixweb.deployment.joint_report import joint_report
from helixweb.deployment.models import LatestReport
from helixweb.inventory.models import Coordinator, NodeState
from helixweb.inventory.node_list import in_state
from runtime.protocol.control import CoordinatorReport

logger = logging.getLogger(__name__)


def coordinators_of(cluster_id: int, *, now: datetime) -> list[Coordinator]:
    """All that have joined; those that can be heard first."""
    rows = Coordinator.objects.filter(cluster=cluster_id)
    return sorted(rows, key=lambda row: (not is_online(row, now=now), row.pk))


def is_online(coordinator: Coordinator, *, now: datetime) -> bool:
    return coordinator.state_at(now) is NodeState.ONLINE


def online_coordinators(cluster_id: int, *, now: datetime) -> QuerySet[Coordinator]:
    """Those that can be heard."""
    return Coordinator.objects.filter(in_state(NodeState.ONLINE, now=now), cluster=cluster_id)


def heard_reports(cluster_id: int, *, now: datetime) -> QuerySet[LatestReport]:
    """By coordinators that can be heard, or by all if none can."""
    told = LatestReport.objects.filter(coordinator__cluster=cluster_id)
    online = online_coordinators(cluster_id, now=now)
    return told.filter(Q(coordinator__in=online) | ~Exists(online))


def lost_stages(cluster_id: int, generation: int, *, now: datetime) -> frozenset[str]:
    """Nodes whose stages have served the generation and are lost to every coordinator that can be
    heard."""
    told = LatestReport.objects.filter(
        coordinator__in=online_coordinators(cluster_id, now=now), report__generation=generation
    )
    lost = [frozenset(names or ()) for names in told.values_list("report__lost_nodes", flat=True)]
    return frozenset.intersection(*lost) if lost else frozenset()


def with_others(
    coordinator: Coordinator, report: CoordinatorReport, *, now: datetime
) -> CoordinatorReport:
    """What a coordinator reports now and the others of its cluster told last, as one.

    `traces` are those of this report alone: the others' have been read.
    """
    rows = LatestReport.objects.filter(coordinator__cluster=coordinator.cluster_id)
    heard: list[CoordinatorReport] = [report]
    silent: list[CoordinatorReport] = []
    for row in rows.exclude(coordinator=coordinator).select_related("coordinator"):
        try:
            told = CoordinatorReport.model_validate(row.report)
        except ValidationError:
            logger.info("the last report of %s is of another release", row.coordinator)
            continue
        (heard if is_online(row.coordinator, now=now) else silent).append(told)
    return joint_report(heard, silent=silent)
