"""The engine of long jobs: claims a row, does its work under a lease, ends it, wakes the next one.

A kind of job is a model that derives from `Job` and a function `work(row, lease)` that returns an
`Outcome`. It raises `Cancelled` to end as cancelled, and `PlannerError` to end as failed, or as
cancelled where it was asked to end; the text becomes the row's error.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.dispatch import Signal
from django.utils import timezone

from helixweb.common import leases
from helixweb.common.events import emit
from helixweb.common.models import Job
from planner.domain.errors import PlannerError

logger = logging.getLogger(__name__)
Status = Job.Status
# A job that has taken its worker down this often is not tried again.
MAX_ATTEMPTS = 3
# A wake-up that waited longer than this behind others has been sent again by the reaper.
WAKE_EXPIRES_S = 10.0
# A job queued longer than a message takes.
LOST_AFTER_S = 3.0
# An attempt at a job is over; sent after commit, with the job's model as sender and `job_id`.
over = Signal()


class Cancelled(Exception):
    """The work ended since it was asked to, without a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ends. `columns` of its row and what `store` writes are one transaction; `store`
    returns what the event of the end says besides."""

    status: Status = Status.SUCCEEDED
    columns: Mapping[str, Any] = field(default_factory=dict)
    store: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`turn`: jobs of one turn run one after the other, `most` at once. `shown_by`: the column with
    the id of the page that shows it."""

    name: str
    model: type[Job]
    work: Callable[[Any, leases.Lease], Outcome]
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


KINDS: dict[str, Kind] = {}  # filled by each app's `apps.ready`


def register(kind: Kind) -> None:
    KINDS[kind.name] = kind


def kind_of(row: Job) -> Kind:
    return next(kind for kind in KINDS.values() if kind.model is type(row))


def claim(row: Job) -> int | None:
    """Take the row for a new attempt; None if it is owned, finished, or must wait for its turn."""
    kind = kind_of(row)
    with transaction.atomic():
        attempt = leases.claim_in_turn(
            kind.model,
            task_id=row.pk,
            beside=[each.model for each in kind.beside],
            most=kind.most,
            now=timezone.now(),
        )
        if attempt is not None:
            announce(row, Status.RUNNING)
    return attempt


def end(row: Job, attempt: int, outcome: Outcome) -> None:
    """Finish the row under this attempt. Raises LostLease, and then writes nothing."""
    with transaction.atomic():
        leases.finish(
            type(row),
            task_id=row.pk,
            attempt=attempt,
            status=outcome.status,
            now=timezone.now(),
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
    with transaction.atomic():
        cancelled = leases.request_cancel(type(row), task_id=row.pk, now=timezone.now())
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
    room = chosen.most - len(
        leases.live([each.model for each in chosen.beside], now=timezone.now())
    )
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
    lease = leases.Lease(type(row), task_id=row.pk, attempt=attempt)
    try:
        end(row, attempt, _outcome(row, lease))
    except leases.LostLease as lost:
        logger.info("%s; its answer is dropped", lost)
    over.send(sender=type(row), job_id=row.pk)


def _outcome(row: Job, lease: leases.Lease) -> Outcome:
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
    except leases.LostLease:
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
    for kind in KINDS.values():
        for job_id in leases.ids_to_wake(kind.model, now=now, queued_for_s=LOST_AFTER_S):
            _send(kind, job_id)
