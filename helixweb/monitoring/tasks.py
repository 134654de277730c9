"""Celery's way into monitoring."""

from celery import shared_task
from django.utils import timezone

from helixweb.monitoring import services
from helixweb.monitoring.traces import prune_traces


@shared_task
def prune_samples() -> None:
    """Beat: forget old metrics and traces."""
    now = timezone.now()
    services.prune_samples(now)
    prune_traces(now)
