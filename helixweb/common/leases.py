"""Claim, renew, finish and reap leased tasks by compare-and-set on rows.

A broker message is only a wake-up: whoever claims the row owns the attempt, and every later write
names that attempt, so a zombie that lost its lease can change nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from helixweb.common.models import FINISHED, LeasedTask

Task = TypeVar("Task", bound=LeasedTask)
Status = LeasedTask.Status


class LostLease(Exception):
    """The row belongs to a later attempt, or was finished; stop working on it."""


def claim(model: type[Task], *, task_id: int, now: datetime) -> int | None:
    """Take the task for a new attempt and return its number; None if it is owned or finished."""
    free = Q(status=Status.QUEUED) | Q(status=Status.RUNNING, lease_expires_at__lt=now)
    changed = model._default_manager.filter(free, pk=task_id).update(
        status=Status.RUNNING,
        attempt=F("attempt") + 1,
        lease_expires_at=now + timedelta(seconds=settings.HELIX_LEASE_S),
    )
    if not changed:
        return None
    model._default_manager.filter(pk=task_id, started_at__isnull=True).update(started_at=now)
    attempt: int = model._default_manager.values_list("attempt", flat=True).get(pk=task_id)
    return attempt


def claim_in_turn(
    model: type[Task],
    *,
    task_id: int,
    beside: Sequence[type[LeasedTask]],
    most: int,
    now: datetime,
) -> int | None:
    """The same; None as well while `most` other tasks of the models `beside` have a live lease.

    Locking every unfinished row, in order, makes two workers that claim different tasks wait for
    each other.
    """
    with transaction.atomic():
        for each in beside:
            list(_unfinished(each).select_for_update().values_list("pk"))
        if len(set(live(beside, now=now)) - {(model, task_id)}) >= most:
            return None
        return claim(model, task_id=task_id, now=now)


def live(
    models: Sequence[type[LeasedTask]], *, now: datetime
) -> list[tuple[type[LeasedTask], int]]:
    """Model and id of the tasks that are being worked on."""
    return [
        (model, pk)
        for model in models
        for pk in _unfinished(model)
        .filter(status=Status.RUNNING, lease_expires_at__gte=now)
        .values_list("pk", flat=True)
    ]


def _unfinished(model: type[Task]) -> QuerySet[Task]:
    return model._default_manager.exclude(status__in=FINISHED).order_by("pk")


def renew(model: type[Task], *, task_id: int, attempt: int, now: datetime) -> bool:
    """Extend the lease; returns whether cancel was requested. Raises LostLease."""
    owned = model._default_manager.filter(pk=task_id, attempt=attempt, status=Status.RUNNING)
    if not owned.update(lease_expires_at=now + timedelta(seconds=settings.HELIX_LEASE_S)):
        raise LostLease(f"{model.__name__} {task_id}: attempt {attempt} lost its lease")
    return bool(owned.values_list("cancel_requested", flat=True).first())


def finish(
    model: type[Task], *, task_id: int, attempt: int, status: Status, now: datetime, **fields: Any
) -> None:
    """End the task under this attempt. Raises LostLease and writes nothing if it is not ours."""
    changed = model._default_manager.filter(
        pk=task_id, attempt=attempt, status=Status.RUNNING
    ).update(status=status, finished_at=now, lease_expires_at=None, **fields)
    if not changed:
        raise LostLease(f"{model.__name__} {task_id}: attempt {attempt} lost its lease")


def request_cancel(model: type[Task], *, task_id: int, now: datetime) -> bool:
    """Flag a running task, end a queued one; False if it was finished already."""
    waiting = model._default_manager.filter(pk=task_id, status=Status.QUEUED)
    if waiting.update(status=Status.CANCELLED, finished_at=now, cancel_requested=True):
        return True
    running = model._default_manager.filter(pk=task_id).exclude(status__in=FINISHED)
    return bool(running.update(cancel_requested=True))


def ids_to_wake(model: type[Task], *, now: datetime, queued_for_s: float) -> list[int]:
    """Tasks that nobody works on: an expired lease, or queued longer than a message takes."""
    lost = Q(status=Status.RUNNING, lease_expires_at__lt=now)
    stuck = Q(status=Status.QUEUED, created_at__lt=now - timedelta(seconds=queued_for_s))
    return list(
        model._default_manager.filter(lost | stuck).order_by("pk").values_list("pk", flat=True)
    )
