"""Celery's way into deployments."""

from datetime import datetime

from celery import shared_task
from django.utils import timezone

from helixweb.access.scope import WHOLE_SITE
from helixweb.deployment import settling
from helixweb.deployment.link_weights import follow_links
from helixweb.deployment.links import keep_measured, live_links
from helixweb.deployment.models import LIVE, SERVING, Deployment
from helixweb.deployment.node_log import prune_log
from helixweb.deployment.services import draining
from helixweb.deployment.services.repairing import repair, repair_deployment

__all__ = ["prune_node_logs", "repair_deployment", "tend_deployments"]


@shared_task
def tend_deployments() -> None:
    """Beat: settle what waits for nodes that report no more, let routing
    weights follow the links, keep what was measured of unused ones, repair what lost a node, see
    how far drains are. Raises what went wrong once all that could be done is: what keeps one
    deployment from it must not keep the others."""
    now = timezone.now()
    draining.follow_drains(now=now)
    wrong: list[Exception] = []
    for deployment_id in live_ids():
        try:
            _tend(deployment_id, now=now)
        except Exception as error:  # noqa: BLE001 - raised below, all together
            error.add_note(f"deployment {deployment_id} was not tended to the end")
            wrong.append(error)
    if wrong:
        raise ExceptionGroup("deployments that were not tended to the end", wrong)


def live_ids() -> list[int]:
    """Deployments whose status may depend on nodes that report no more."""
    return list(Deployment.unscoped.filter(status__in=LIVE).values_list("pk", flat=True))


def _tend(deployment_id: int, *, now: datetime) -> None:
    settling.settle(deployment_id, now=now)
    rows = Deployment.light(WHOLE_SITE).filter(status__in=SERVING, emulated=False)
    deployment = rows.filter(pk=deployment_id).first()
    if deployment is not None:
        links = live_links(deployment, now=now)
        follow_links(deployment, links, now=now)
        keep_measured(deployment.cluster, links, now=now)
    repair(deployment_id, now=now)


@shared_task
def prune_node_logs() -> None:
    """Beat: forget old lines of nodes' logs."""
    prune_log(now=timezone.now())
