"""Claim, renew, finish and reap jobs by compare-and-set on rows.

A broker message is only a wake-up: the worker that claims the row owns the attempt, and every later
write names that attempt, so a worker that lost its lease can change nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from helixweb.common.models import FINISHED, Job

logger = logging.getLogger(__name__)
Task = TypeVar("Task", bound=Job)
Status = Job.Status
# A cancelled job learns of it within this time.
CANCEL_POLL_S = 0.1


class LostLease(Exception):
    """The row belongs to a later attempt, or was finished; stop working on it."""


def claim(model: type[Task], *, task_id: int, now: datetime) -> int | None:
    """Take the task for a new attempt and return its number; None if it is owned or finished."""
    free = Q(status=Status.QUEUED) | Q(status=Status.RUNNING, lease_expires_at__lt=now)
    changed = model._base_manager.filter(free, pk=task_id).update(
        status=Status.RUNNING,
        attempt=F("attempt") + 1,
        lease_expires_at=now + timedelta(seconds=settings.HELIX_LEASE_S),
    )
    if not changed:
        return None
    model._base_manager.filter(pk=task_id, started_at__isnull=True).update(started_at=now)
    attempt: int = model._base_manager.values_list("attempt", flat=True).get(pk=task_id)
    return attempt


def claim_in_turn(
    model: type[Task],
    *,
    task_id: int,
    beside: Sequence[type[Job]],
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


def live(models: Sequence[type[Job]], *, now: datetime) -> list[tuple[type[Job], int]]:
    """Model and id of the tasks that are being worked on."""
    return [
        (model, pk)
        for model in models
        for pk in _unfinished(model)
        .filter(status=Status.RUNNING, lease_expires_at__gte=now)
        .values_list("pk", flat=True)
    ]


def _unfinished(model: type[Task]) -> QuerySet[Task]:
    return model._base_manager.exclude(status__in=FINISHED).order_by("pk")


def renew(model: type[Task], *, task_id: int, attempt: int, now: datetime) -> bool:
    """Extend the lease; returns whether cancel was requested. Raises LostLease."""
    owned = model._base_manager.filter(pk=task_id, attempt=attempt, status=Status.RUNNING)
    if not owned.update(lease_expires_at=now + timedelta(seconds=settings.HELIX_LEASE_S)):
        raise LostLease(f"{model.__name__} {task_id}: attempt {attempt} lost its lease")
    return bool(owned.values_list("cancel_requested", flat=True).first())


def finish(
    model: type[Task], *, task_id: int, attempt: int, status: Status, now: datetime, **fields: Any
) -> None:
    """End the task under this attempt. Raises LostLease and writes nothing if it is not ours."""
    changed = model._base_manager.filter(pk=task_id, attempt=attempt, status=Status.RUNNING).update(
        status=status, finished_at=now, lease_expires_at=None, **fields
    )
    if not changed:
        raise LostLease(f"{model.__name__} {task_id}: attempt {attempt} lost its lease")


def request_cancel(model: type[Task], *, task_id: int, now: datetime) -> bool:
    """Flag a running task, end a queued one; False if it was finished already."""
    waiting = model._base_manager.filter(pk=task_id, status=Status.QUEUED)
    if waiting.update(status=Status.CANCELLED, finished_at=now, cancel_requested=True):
        return True
    running = model._base_manager.filter(pk=task_id).exclude(status__in=FINISHED)
    return bool(running.update(cancel_requested=True))


def ids_to_wake(model: type[Task], *, now: datetime, queued_for_s: float) -> list[int]:
    """Tasks that nobody works on: an expired lease, or queued longer than a message takes."""
    lost = Q(status=Status.RUNNING, lease_expires_at__lt=now)
    stuck = Q(status=Status.QUEUED, created_at__lt=now - timedelta(seconds=queued_for_s))
    return list(
        model._base_manager.filter(lost | stuck).order_by("pk").values_list("pk", flat=True)
    )


class Lease:
    """Context manager around the work of one attempt, and its `CancelToken`.

    Solvers call back on threads of their own choosing and may not return for seconds. So a thread
    of its own renews the lease and touches the database; the work's threads never do. `lost` says
    that the lease went to another attempt; the work was then told to stop.
    """

    def __init__(self, model: type[Job], *, task_id: int, attempt: int) -> None:
        self._model, self._task_id, self.attempt = model, task_id, attempt
        self._name = f"{model.__name__} {task_id}"
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        # Called ten times a second and at the end, then with True; may raise LostLease.
        self.write: Callable[[bool], None] = lambda _ended: None
        self.lost = False

    def is_cancelled(self) -> bool:
        return self._stop.is_set()

    def owned(self) -> QuerySet[Any]:
        """The row while this attempt owns it; empty afterwards."""
        return self._model._base_manager.filter(
            pk=self._task_id, attempt=self.attempt, status=Status.RUNNING
        )

    def update(self, **columns: Any) -> None:
        """Write columns of the row. Raises LostLease."""
        if not self.owned().update(**columns):
            raise LostLease(f"{self._name}: attempt {self.attempt} lost its lease")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        renewed_s = time.monotonic()
        try:
            while not self.lost:
                ended = self._ended.wait(CANCEL_POLL_S)
                try:
                    self.write(ended)
                    if ended:
                        return
                    if time.monotonic() - renewed_s > settings.HELIX_LEASE_S / 3:
                        renewed_s = time.monotonic()
                        now = timezone.now()
                        renew(self._model, task_id=self._task_id, attempt=self.attempt, now=now)
                    self._look_for_cancel()
                except LostLease as lost:
                    logger.info("%s; its work stops", lost)
                    self.lost = True
                    self._stop.set()
                except (OperationalError, InterfaceError):
                    # The database may come back before the lease ends; if not, the lease decides.
                    logger.warning("%s: database unreachable", self._name, exc_info=True)
                    connection.close()
                    if ended:
                        return
        finally:
            connection.close()

    def _look_for_cancel(self) -> None:
        rows = self._model._base_manager
        if rows.filter(pk=self._task_id, cancel_requested=True).exists():
            self._stop.set()
