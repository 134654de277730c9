"""Celery's way into monitoring."""

from celery import shared_task
from django.utils import timezone

from helixweb.monitoring import services
from helixweb.monitoring.history import roll_up
from helixweb.monitoring.predicting import predict_live
from helixweb.monitoring.refining import refine_profiles
from helixweb.monitoring.services import prune_traces


@shared_task
def prune_samples() -> None:
    """Beat: roll up metrics, forget old ones and old traces."""
    now = timezone.now()
    roll_up(now)
    services.prune_samples(now)
    prune_traces(now)


@shared_task
def tend_predictions() -> None:
    """Beat: say what is to be expected at the present load, and refine profiles from traffic."""
    now = timezone.now()
    predict_live(now)
    refine_profiles(now)
