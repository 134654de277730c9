"""The engine of long jobs: claims a row, does its work under a lease, ends it, wakes the next one.

A kind of job is a model that derives from `Job` and a function `work(row, lease)` that returns an
`Outcome`. It raises `Cancelled` to end as cancelled, and `PlannerError` to end as failed, or as
cancelled where it was asked to end; the text becomes the row's error.

A broker message is only a wake-up: the worker that claims the row owns the attempt, and every later
write names that attempt, so a worker that lost its lease can change nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from celery import shared_task
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce
from django.dispatch import Signal
from django.utils import timezone

from helixweb.common.events import emit
from helixweb.common.models import FINISHED, Job
from planner import PlannerError

# A cancelled job learns of it within this time.
CANCEL_POLL_S = 0.1


logger = logging.getLogger(__name__)
Status = Job.Status
# A job that has taken its worker down this often is not tried again.
MAX_ATTEMPTS = 3
# A wake-up that waited longer than this behind others has been sent again by the reaper.
WAKE_EXPIRES_S = 10.0
# A job queued longer than a message takes.
LOST_AFTER = timedelta(seconds=3)
# An attempt at a job is over; sent after commit, with the job's model as sender and `job_id`.
over = Signal()


class LostLease(Exception):
    """The row belongs to a later attempt, or was finished; stop working on it."""


def lease_end() -> datetime:
    """Expiry of a lease that is taken or renewed now."""
    return timezone.now() + timedelta(seconds=settings.HELIX_LEASE_S)


class Lease:
    """Context manager around the work of one attempt, and its `CancelToken`.

    Solvers call back on threads of their own choosing and may not return for seconds. So a thread
    of its own renews the lease and touches the database; the work's threads never do. `lost` says
    that another attempt has taken the lease; the work was then cancelled.
    """

    def __init__(self, row: Job, attempt: int) -> None:
        self._rows, self._pk, self.attempt = type(row)._base_manager, row.pk, attempt
        self._name = f"{type(row).__name__} {row.pk}"
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
        return self._rows.filter(pk=self._pk, attempt=self.attempt, status=Job.Status.RUNNING)

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
                        self.update(lease_expires_at=lease_end())
                    if self._rows.filter(pk=self._pk, cancel_requested=True).exists():
                        self._stop.set()
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


class Cancelled(Exception):
    """The work ended since it was asked to, without a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a job. `columns` of its row and what `store` writes are one transaction;
    `store` returns additional data of the event."""

    status: Status = Status.SUCCEEDED
    columns: Mapping[str, Any] = field(default_factory=dict)
    store: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`turn`: jobs of one turn run one after the other, `most` at once. `shown_by`: the column with
    the id of the page that shows it."""

    name: str
    model: type[Job]
    work: Callable[[Any, Lease], Outcome]
    turn: str
    shown_by: str

    @property
    def most(self) -> int:
        most: int = settings.HELIX_CONCURRENT_SOLVES if self.turn == "search" else 1
        return most

    @property
    def beside(self) -> list["Kind"]:
        """The kinds of its turn."""
        return [kind for kind in KINDS.values() if kind.turn == self.turn]

    def live(self, *, now: datetime) -> set[tuple[type[Job], int]]:
        """Model and id of the jobs of its turn that are being worked on."""
        has_lease = {"status": Status.RUNNING, "lease_expires_at__gte": now}
        return {
            (each.model, pk)
            for each in self.beside
            for pk in each.model._base_manager.filter(**has_lease).values_list("pk", flat=True)
        }


KINDS: dict[str, Kind] = {}  # filled by each app's `apps.ready`


def register(kind: Kind) -> None:
    KINDS[kind.name] = kind


def kind_of(row: Job) -> Kind:
    return next(kind for kind in KINDS.values() if kind.model is type(row))


def claim(row: Job) -> int | None:
    """Take the row for a new attempt and return its number; None if it is owned, finished, or must
    wait for its turn.

    Locking every unfinished row, in order, makes two workers that claim different jobs wait for
    each other.
    """
    kind, now = kind_of(row), timezone.now()
    free = Q(status=Status.QUEUED) | Q(status=Status.RUNNING, lease_expires_at__lt=now)
    with transaction.atomic():
        for each in kind.beside:
            unfinished = each.model._base_manager.exclude(status__in=FINISHED).order_by("pk")
            list(unfinished.select_for_update().values_list("pk"))
        if len(kind.live(now=now) - {(kind.model, row.pk)}) >= kind.most:
            return None
        if not kind.model._base_manager.filter(free, pk=row.pk).update(
            status=Status.RUNNING,
            attempt=F("attempt") + 1,
            lease_expires_at=lease_end(),
            started_at=Coalesce("started_at", now),
        ):
            return None
        row.refresh_from_db(fields=["attempt"])
        announce(row, Status.RUNNING)
    return row.attempt


def end(row: Job, attempt: int, outcome: Outcome) -> None:
    """Finish the row under this attempt. Raises LostLease, and then writes nothing."""
    with transaction.atomic():
        Lease(row, attempt).update(
            status=outcome.status,
            finished_at=timezone.now(),
            lease_expires_at=None,
            **outcome.columns,
        )
        announce(row, outcome.status, **outcome.store())
        row.note_end(outcome.status)


def announce(row: Job, status: str, **said: Any) -> None:
    """Emit the row's event; call it in the transaction that changes the row."""
    columns = {name: getattr(row, column) for name, column in row.event_columns.items()}
    emit(row.topic, row.event_type, {**columns, "status": str(status), **said})


def cancel(row: Job) -> bool:
    """Ask it to end with what it has; False if it had ended already."""
    rows = type(row)._base_manager.filter(pk=row.pk)
    ended = {"status": Status.CANCELLED, "finished_at": timezone.now()}
    with transaction.atomic():
        cancelled = bool(
            rows.filter(status=Status.QUEUED).update(cancel_requested=True, **ended)
            or rows.exclude(status__in=FINISHED).update(cancel_requested=True)
        )
        if cancelled:
            row.refresh_from_db(fields=["status", "cancel_requested", "finished_at"])
            announce(row, row.status, cancel_requested=True)
    return cancelled


def wake(row: Job) -> None:
    """Have a worker look after commit; if the broker is away, the reaper does so later."""
    transaction.on_commit(lambda: _send(kind_of(row), row.pk), robust=True)


@shared_task
def work(*, kind: str, job_id: int) -> None:
    """Attempt the job if it is free and its turn has come; then wake the jobs that waited."""
    chosen = KINDS[kind]
    row = chosen.model._base_manager.filter(pk=job_id).first()
    if row is not None:
        attempt_job(row)
    room = chosen.most - len(chosen.live(now=timezone.now()))
    for each in chosen.beside if room > 0 else ():
        queued = each.model._base_manager.filter(status=Status.QUEUED).order_by("pk")
        for waiting in queued.values_list("pk", flat=True)[:room]:
            _send(each, waiting)


def attempt_job(row: Job) -> None:
    """Claim the row, do its work, end it. Does nothing if it is not free or not its turn."""
    attempt = claim(row)
    if attempt is None:
        return
    row.refresh_from_db()
    lease = Lease(row, attempt)
    try:
        end(row, attempt, _outcome(row, lease))
    except LostLease as lost:
        logger.info("%s; its answer is dropped", lost)
    over.send(sender=type(row), job_id=row.pk)


def _outcome(row: Job, lease: Lease) -> Outcome:
    if lease.attempt > MAX_ATTEMPTS:
        return _failed(
            f"the worker died {MAX_ATTEMPTS} times while working on this; give the worker more "
            "memory, or ask for less: prune links or shorten the time limit"
        )
    try:
        with lease:
            return kind_of(row).work(row, lease)
    except Cancelled as cancelled:
        return Outcome(status=Status.CANCELLED, columns={"error": str(cancelled)})
    except PlannerError as error:
        status = Status.CANCELLED if lease.is_cancelled() else Status.FAILED
        return Outcome(status=status, columns={"error": str(error)})
    except LostLease:
        raise
    except Exception as error:  # outermost: the row says so, the log has the traceback
        logger.exception("%s %s failed", type(row).__name__, row.pk)
        return _failed(f"unexpected {type(error).__name__}: {error}; see the worker's log")


def _failed(error: str) -> Outcome:
    return Outcome(status=Status.FAILED, columns={"error": error})


def _send(kind: Kind, job_id: int) -> None:
    work.apply_async(kwargs={"kind": kind.name, "job_id": job_id}, expires=WAKE_EXPIRES_S)


@shared_task
def reap_lost_jobs() -> None:
    """Beat: wake every job whose worker died or whose message was lost."""
    now = timezone.now()
    lost = Q(status=Status.RUNNING, lease_expires_at__lt=now)
    stuck = Q(status=Status.QUEUED, created_at__lt=now - LOST_AFTER)
    for kind in KINDS.values():
        rows = kind.model._base_manager.filter(lost | stuck).order_by("pk")
        for job_id in rows.values_list("pk", flat=True):
            _send(kind, job_id)
