"""Wakes the processes of a cluster: each then reads its desired state again.

A push carries nothing, so it may be lost, repeated or late. Celery sends it; beat sends again what
was not sent within `PUSH_WITHIN`.
"""

from datetime import datetime, timedelta
from typing import Any

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from helixweb.common import events
from helixweb.deployment.models import LIVE, Deployment, Status
from helixweb.inventory.models import Coordinator, Node

PUSH_WITHIN = timedelta(seconds=3)


@shared_task(name="helixweb.deployment.tasks.push_deployment")
def push_deployment(*, deployment_id: int) -> None:
    """Wake the processes of a deployment's cluster; may run twice."""
    push(deployment_id, now=timezone.now())


def push_after_commit(deployment_id: int) -> None:
    """Have a worker push. Should the broker be down, beat sends it later."""
    transaction.on_commit(lambda: push_deployment.delay(deployment_id=deployment_id), robust=True)


def push(deployment_id: int, *, now: datetime) -> bool:
    """Wake every process of the deployment's cluster; False if that was done already."""
    with transaction.atomic():
        waiting = Deployment.objects.filter(pk=deployment_id, pushed_at__isnull=True)
        if not waiting.update(pushed_at=now):
            return False
        cluster_id = Deployment.objects.values_list("cluster", flat=True).get(pk=deployment_id)
        wake(*Node.objects.filter(cluster=cluster_id, joined_at__isnull=False))
        wake_coordinators(cluster_id)
    return True


def overdue_ids(now: datetime) -> list[int]:
    """Deployments whose push was lost with its message."""
    rows = Deployment.objects.filter(status__in=LIVE | {Status.STOPPED}, pushed_at__isnull=True)
    return list(rows.filter(changed_at__lt=now - PUSH_WITHIN).values_list("pk", flat=True))


def announce_keys(**signal: Any) -> None:
    """An API key was made, revoked or deleted: every coordinator reads its list again."""
    wake(*Coordinator.objects.unscoped())


def wake_coordinators(cluster_id: int) -> None:
    """What they must serve has changed, though not what nodes must run."""
    wake(*Coordinator.objects.filter(cluster=cluster_id))


def wake(*processes: Node | Coordinator) -> None:
    """These alone."""
    for process in processes:
        events.emit(process.topic, "desired", {})
