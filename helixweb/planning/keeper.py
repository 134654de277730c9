"""Keeps the lease of a task while its search runs in another thread, and hears of cancel.

Solvers call back on threads of their own choosing, and may not come back for seconds at a time. So
a thread of the keeper's own renews the lease and touches the database, never the search's.
"""

import logging
import threading
import time
from types import TracebackType
from typing import Self

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from helixweb.common import leases
from helixweb.common.actor import acting_for_site
from helixweb.common.models import LeasedTask

logger = logging.getLogger(__name__)
# How long a cancelled search may go on before it hears of it.
CANCEL_POLL_S = 0.1


class LeaseKeeper:
    """Context manager around a search, and its `CancelToken`.

    `lost` says whether the lease went to another attempt; the search was then told to stop.
    """

    def __init__(self, task_type: type[LeasedTask], *, task_id: int, attempt: int) -> None:
        self._task_type = task_type
        self._task_id = task_id
        self._attempt = attempt
        self._name = f"{task_type.__name__} {task_id}"
        self._stop_search = threading.Event()
        self._search_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self.lost = False

    def is_cancelled(self) -> bool:
        return self._stop_search.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._search_ended.set()
        self._thread.join()

    def write(self, *, ended: bool) -> None:
        """What the keeper's thread does ten times a second and at the end; may raise LostLease."""

    @acting_for_site()
    def _run(self) -> None:
        renewed_s = time.monotonic()
        try:
            while not self.lost:
                ended = self._search_ended.wait(CANCEL_POLL_S)
                try:
                    self.write(ended=ended)
                    if ended:
                        return
                    if time.monotonic() - renewed_s > settings.HELIX_LEASE_S / 3:
                        renewed_s = time.monotonic()
                        self._renew()
                    self._look_for_cancel()
                except leases.LostLease as lost:
                    logger.info("%s; its search stops", lost)
                    self.lost = True
                    self._stop_search.set()
                except (OperationalError, InterfaceError):
                    # The database may come back before the lease ends; if not, the lease decides.
                    logger.warning("%s: database unreachable", self._name, exc_info=True)
                    connection.close()
                    if ended:
                        return
        finally:
            connection.close()

    def _renew(self) -> None:
        leases.renew(
            self._task_type, task_id=self._task_id, attempt=self._attempt, now=timezone.now()
        )

    def _look_for_cancel(self) -> None:
        rows = self._task_type._default_manager
        if rows.filter(pk=self._task_id, cancel_requested=True).exists():
            self._stop_search.set()
