"""Celery's way into monitoring."""

from celery import shared_task
from django.utils import timezone

from helixweb.monitoring import services
from helixweb.monitoring.rollups import roll_up
from helixweb.monitoring.traces import prune_traces


@shared_task
def prune_samples() -> None:
    """Beat: roll up metrics, forget old ones and old traces."""
    now = timezone.now()
    roll_up(now)
    services.prune_samples(now)
    prune_traces(now)
