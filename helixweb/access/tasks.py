"""Beat's task: forget what counts no more."""

from celery import shared_task
from django.utils import timezone

from helixweb.access import guessing, sessions


@shared_task
def prune_access() -> None:
    """Failed log-ins of before, and rows of log-ins that have ended."""
    guessing.forget_failures(timezone.now())
    sessions.forget_ended()
