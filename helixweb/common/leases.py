"""The lease of one attempt at a job: renewed while it works, checked at every write.

A broker message is only a wake-up: the worker that claims the row owns the attempt, and every later
write names that attempt, so a worker that lost its lease can change nothing.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.db.models import QuerySet
from django.utils import timezone

from helixweb.common.models import Job

logger = logging.getLogger(__name__)
# A cancelled job learns of it within this time.
CANCEL_POLL_S = 0.1


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
