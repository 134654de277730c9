"""Celery tasks of alerting: evaluate rules, send due deliveries, delete old rows."""

from celery import shared_task
from django.utils import timezone

from helixweb.alerting import deliveries, sending, services
from helixweb.inventory.models import Cluster


@shared_task
def tend_alerts() -> None:
    """Beat: queue due deliveries, then the evaluation of every cluster that may need it; one task
    each, so that a slow one does not delay the others."""
    now = timezone.now()
    for delivery_id in deliveries.due_ids(now):
        send_delivery.apply_async(kwargs={"delivery_id": delivery_id}, expires=10.0)
    for cluster_id in services.ids_to_look_at(now):
        evaluate_cluster.apply_async(kwargs={"cluster_id": cluster_id}, expires=5.0)


@shared_task
def evaluate_cluster(*, cluster_id: int) -> None:
    """Evaluate a cluster's rules; harmless if it was done just now."""
    cluster = Cluster.unscoped.filter(pk=cluster_id).first()
    if cluster is not None:
        services.evaluate(cluster, now=timezone.now())


@shared_task
def send_delivery(*, delivery_id: int) -> None:
    """Attempt a delivery once; harmless if it is not due or another worker has it."""
    sending.send(delivery_id)


@shared_task
def prune_alerts() -> None:
    """Beat: delete alerts and deliveries that ended over a month ago."""
    services.prune(timezone.now())
