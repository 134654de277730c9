"""Wakes the processes of a cluster: each then reads its desired state anew.

A push carries nothing, so it may be lost, repeated or late. Celery sends it; beat sends again what
was not sent within `PUSH_WITHIN`.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from helixweb.common import events
from helixweb.deployment.models import LIVE, Deployment, Status
from helixweb.inventory.models import Coordinator, Node

PUSH_WITHIN = timedelta(seconds=3)


def push(deployment_id: int, *, now: datetime) -> bool:
    """Wake every process of the deployment's cluster; False if that was done already."""
    with transaction.atomic():
        waiting = Deployment.objects.filter(pk=deployment_id, pushed_at__isnull=True)
        if not waiting.update(pushed_at=now):
            return False
        cluster_id = Deployment.objects.values_list("cluster", flat=True).get(pk=deployment_id)
        for node in Node.objects.filter(cluster=cluster_id, joined_at__isnull=False):
            _wake_process(node)
        for coordinator in Coordinator.objects.filter(cluster=cluster_id):
            _wake_process(coordinator)
    return True


def overdue_ids(now: datetime) -> list[int]:
    """Deployments whose push was lost with its message."""
    return list(
        Deployment.objects.filter(
            status__in=LIVE | {Status.STOPPED},
            pushed_at__isnull=True,
            changed_at__lt=now - PUSH_WITHIN,
        ).values_list("pk", flat=True)
    )


def announce_keys(**signal: Any) -> None:
    """An API key was made, revoked or deleted: every coordinator reads its list anew."""
    for coordinator in Coordinator.objects.unscoped():
        _wake_process(coordinator)


def wake_coordinator(cluster_id: int) -> None:
    """What it shall serve has changed, though not what nodes shall run."""
    for coordinator in Coordinator.objects.filter(cluster=cluster_id):
        _wake_process(coordinator)


def wake_node(node: Node) -> None:
    """What it shall hold has changed, though not what others shall."""
    _wake_process(node)


def wake_unplaced(deployment: Deployment) -> None:
    """Nodes that it gives no layers, which may hold some of what ran before."""
    nodes = Node.objects.filter(cluster=deployment.cluster_id, joined_at__isnull=False)
    for node in nodes.exclude(assignments__deployment=deployment).only("pk"):
        _wake_process(node)


def _wake_process(process: Node | Coordinator) -> None:
    events.emit(process.topic, "desired", {})
