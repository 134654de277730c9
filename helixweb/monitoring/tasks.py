"""Celery's way into monitoring."""

from celery import shared_task
from django.utils import timezone

from helixweb.monitoring import services


@shared_task
def prune_samples() -> None:
    """Beat: forget old metrics."""
    services.prune_samples(timezone.now())
