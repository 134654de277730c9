"""Celery's way into deployments."""

from celery import shared_task
from django.utils import timezone

from helixweb.deployment import services


@shared_task
def push_deployment(*, deployment_id: int) -> None:
    """Wake the processes of a deployment's cluster; may run twice."""
    services.push(deployment_id, now=timezone.now())


@shared_task
def tend_deployments() -> None:
    """Beat: push what was not pushed, settle what waits for nodes that report no more."""
    now = timezone.now()
    for deployment_id in services.overdue_ids(now):
        services.push(deployment_id, now=now)
    for deployment_id in services.live_ids():
        services.settle(deployment_id, now=now)
