"""Beat's tasks: wake what lost its worker, forget what has expired."""

from collections.abc import Callable
from datetime import timedelta

from celery import shared_task
from django.contrib.sessions.models import Session
from django.utils import timezone

from helixweb.common import leases
from helixweb.common.batches import delete_in_batches
from helixweb.common.models import Event, LeasedTask, LoginLink

# A page that was away for longer is read anew; a sample comes every second.
REPLAYED = timedelta(hours=1)
SAMPLES_REPLAYED = timedelta(minutes=5)
# Filled by each app's `apps.ready`: leased model -> function that sends its wake-up message.
_WAKE: dict[type[LeasedTask], Callable[[int], None]] = {}


def register_leased(model: type[LeasedTask], wake: Callable[[int], None]) -> None:
    """Have the reaper watch `model`; `wake(task_id)` sends its Celery message."""
    _WAKE[model] = wake


def leased_models() -> list[type[LeasedTask]]:
    """Those that the reaper watches."""
    return list(_WAKE)


@shared_task
def reap_lost_tasks() -> None:
    """Wake every leased task whose worker died or whose message was lost."""
    for model, wake in _WAKE.items():
        for task_id in leases.ids_to_wake(model, now=timezone.now(), queued_for_s=3.0):
            wake(task_id)


@shared_task
def prune_expired() -> None:
    """Events and answers too old to be replayed, sessions and login links that admit nobody."""
    from helixweb.common.rest.idempotency import forget_old_answers  # and with it all of REST

    now = timezone.now()
    old = Event.objects.filter(created_at__lt=now - REPLAYED)
    samples = Event.objects.filter(created_at__lt=now - SAMPLES_REPLAYED, type="metrics")
    for rows in (old, samples):
        delete_in_batches(rows, key="pk")
    Session.objects.filter(expire_date__lt=now).delete()
    forget_old_answers(now)
    LoginLink.objects.filter(expires_at__lt=now - timedelta(days=1)).delete()
