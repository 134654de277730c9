"""The task that wakes a cluster's processes, apart from those of beat, which need services."""

from celery import shared_task
from django.db import transaction
from django.utils import timezone

from helixweb.deployment import pushing


@shared_task(name="helixweb.deployment.tasks.push_deployment")
def push_deployment(*, deployment_id: int) -> None:
    """Wake the processes of a deployment's cluster; may run twice."""
    pushing.push(deployment_id, now=timezone.now())


def push_after_commit(deployment_id: int) -> None:
    """Have a worker push. Should the broker be down, beat sends it later."""
    transaction.on_commit(lambda: push_deployment.delay(deployment_id=deployment_id), robust=True)
