"""Celery's way into alerting: look at rules, deliver what is due, forget what is old."""

from celery import shared_task
from django.utils import timezone

from helixweb.alerting import deliveries, evaluating, sending
from helixweb.inventory.models import Cluster


@shared_task
def tend_alerts() -> None:
    """Beat: every cluster's rules, then what is to be told."""
    for cluster in Cluster.objects.order_by("pk"):
        evaluating.evaluate(cluster, now=timezone.now())
    for delivery_id in deliveries.due_ids(timezone.now()):
        send_delivery.apply_async(kwargs={"delivery_id": delivery_id}, expires=10.0)


@shared_task
def send_delivery(*, delivery_id: int) -> None:
    """One try; harmless if it is not due or another worker has it."""
    sending.send(delivery_id)


@shared_task
def prune_alerts() -> None:
    """Beat: what was over a month ago."""
    evaluating.prune(timezone.now())
