"""Celery's way into deployments."""

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from helixweb.deployment import pushing, settling
from helixweb.deployment.measured_links import keep_measured
from helixweb.deployment.node_log import prune_log
from helixweb.deployment.weighing import follow_links


@shared_task
def push_deployment(*, deployment_id: int) -> None:
    """Wake the processes of a deployment's cluster; may run twice."""
    pushing.push(deployment_id, now=timezone.now())


@shared_task
def tend_deployments() -> None:
    """Beat: push what was not pushed, settle what waits for nodes that report no more, let routing
    weights follow the links, keep what was measured of unused ones, repair what lost a node."""
    from helixweb.deployment.services import repair  # imported here: to deploy sends tasks of these

    now = timezone.now()
    for deployment_id in pushing.overdue_ids(now):
        pushing.push(deployment_id, now=now)
    for deployment_id in settling.live_ids():
        settling.settle(deployment_id, now=now)
        follow_links(deployment_id, now=now)
        keep_measured(deployment_id, now=now)
        repair(deployment_id, now=now)


@shared_task
def prune_node_logs() -> None:
    """Beat: forget old lines of nodes' logs."""
    prune_log(now=timezone.now())


def push_after_commit(deployment_id: int) -> None:
    """Have a worker push. Should the broker be down, beat sends it later."""
    transaction.on_commit(lambda: push_deployment.delay(deployment_id=deployment_id), robust=True)
