"""Beat's task: notice processes that fell silent."""

from celery import shared_task
from django.utils import timezone

from helixweb.inventory import services


@shared_task
def announce_silent_processes() -> None:
    """Tell open pages, once each, who has not been heard of."""
    services.announce_silent(timezone.now())
