"""The task that goes on with the repair of a deployment, apart from those of beat: it is sent by
web processes, and by the task of a search."""

from typing import Any

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from helixweb.deployment.models import OPEN, Repair


@shared_task(name="helixweb.deployment.tasks.repair_deployment")
def repair_deployment(*, deployment_id: int) -> None:
    """Do what is next about lost nodes; may run twice."""
    from helixweb.deployment.services import repairing

    repairing.repair(deployment_id, now=timezone.now())


def repair_after_commit(deployment_id: int, *, after_s: float = 0.0) -> None:
    """Have a worker look. Should the broker be down, beat looks later."""
    transaction.on_commit(
        lambda: repair_deployment.apply_async(
            kwargs={"deployment_id": deployment_id}, countdown=after_s
        ),
        robust=True,
    )


def follow_search(*, job_id: int, **_: Any) -> None:
    """A search is over: a repair may have waited for it."""
    for row in Repair.objects.filter(run=job_id, state__in=OPEN).only("deployment_id"):
        repair_after_commit(row.deployment_id)
