"""Celery beat's scheduler, which continues when the system clock is set back."""

import logging
from typing import Any

from celery.beat import PersistentScheduler

logger = logging.getLogger(__name__)


class Scheduler(PersistentScheduler):
    """Celery's own sends nothing until the clock is again where it was: for an hour, if it was an
    hour ahead, also after a restart. Lost nodes would not be noticed, nor tasks that lost their
    worker."""

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due; seconds until the next look."""
        self._follow_clock()
        seconds: float = super().tick(*args, **options)
        return seconds

    def _follow_clock(self) -> None:
        ahead = [
            entry
            for entry in self.schedule.values()
            if entry.last_run_at is not None and entry.last_run_at > entry.default_now()
        ]
        if not ahead:
            return
        logger.warning("the clock was set back; what is sent at intervals goes on from now")
        for entry in ahead:
            entry.last_run_at = entry.default_now()
        self.old_schedulers = None  # so that Celery computes again when each is due
