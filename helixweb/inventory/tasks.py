"""Beat's tasks: notice processes that fell silent, forget old lines of the change log."""

from celery import shared_task
from django.utils import timezone

from helixweb.inventory.services import change_log, presence


@shared_task
def announce_silent_processes() -> None:
    """Notify open pages, once each, of lost agents and coordinators."""
    presence.announce_silent(timezone.now())


@shared_task
def prune_change_log() -> None:
    """Beat, once a day: delete old lines of the change log."""
    change_log.prune_changes(timezone.now())
