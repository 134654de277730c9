"""Celery's tasks of this package: the engine of jobs, and forgetting what has expired."""

from datetime import timedelta

from celery import shared_task
from django.contrib.sessions.models import Session
from django.utils import timezone

from helixweb.common.batches import delete_in_batches
from helixweb.common.jobs import reap_lost_jobs, work
from helixweb.common.models import Event, LoginLink

__all__ = ["prune_expired", "reap_lost_jobs", "work"]
# A page that was away for longer is reloaded; a sample comes every second.
REPLAYED = timedelta(hours=1)
SAMPLES_REPLAYED = timedelta(minutes=5)


@shared_task
def prune_expired() -> None:
    """Delete events and answers too old to be replayed, and expired sessions and login links."""
    from helixweb.common.rest.idempotency import forget_old_answers  # and with it all of REST

    now = timezone.now()
    old = Event.objects.filter(created_at__lt=now - REPLAYED)
    samples = Event.objects.filter(created_at__lt=now - SAMPLES_REPLAYED, type="metrics")
    for rows in (old, samples):
        delete_in_batches(rows, key="pk")
    Session.objects.filter(expire_date__lt=now).delete()
    forget_old_answers(now)
    LoginLink.objects.filter(expires_at__lt=now - timedelta(days=1)).delete()
