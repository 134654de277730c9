"""Celery's way into deployments."""

from datetime import datetime

from celery import shared_task
from django.utils import timezone

from helixweb.deployment import settling
from helixweb.deployment.coordinators import observed
from helixweb.deployment.links import follow_links, keep_measured, live_links
from helixweb.deployment.models import LIVE, SERVING, Deployment
from helixweb.deployment.node_log import prune_log
from helixweb.deployment.services import draining
from helixweb.deployment.services.repairing import repair, repair_deployment

__all__ = ["prune_node_logs", "repair_deployment", "tend_deployments"]


@shared_task
def tend_deployments() -> None:
    """Beat: settle deployments that wait for silent nodes, update routing weights from the links,
    store measurements of unused links, repair deployments that lost a node, follow drains. Raises
    errors at the end, so that a failure of one deployment does not affect the others."""
    now = timezone.now()
    draining.follow_drains(now=now)
    wrong: list[Exception] = []
    for deployment in observed().filter(status__in=LIVE):
        try:
            _tend(deployment, now=now)
        except Exception as error:  # noqa: BLE001 - raised below, all together
            error.add_note(f"deployment {deployment.pk} was not tended to the end")
            wrong.append(error)
    if wrong:
        raise ExceptionGroup("deployments that were not tended to the end", wrong)


def _tend(deployment: Deployment, *, now: datetime) -> None:
    if not settling.is_settled(deployment, now=now):
        settling.settle(deployment.pk, now=now)
        deployment.refresh_from_db(fields=["status", "message"])
    if deployment.status in SERVING and not deployment.emulated:
        links = live_links(deployment, now=now)
        follow_links(deployment, links, now=now)
        keep_measured(deployment.cluster, links, now=now)
    repair(deployment, now=now)


@shared_task
def prune_node_logs() -> None:
    """Beat: forget old lines of nodes' logs."""
    prune_log(now=timezone.now())
