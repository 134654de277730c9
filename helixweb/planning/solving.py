"""One attempt at a plan run: the planner in this thread, lease and database in another.

Solvers call back on threads of their own choosing, and may not come back for seconds at a time. So
their callbacks touch no database: `SearchKeeper` queues what they report and a thread of its own
writes it, renews the lease and looks for the cancel flag.
"""

import logging
import queue
import threading
import time
from datetime import datetime
from types import TracebackType

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from helixweb.common import leases
from helixweb.planning import attempts
from helixweb.planning.models import PlanRun
from helixweb.planning.options import options_from_json
from planner.compute_plan import NoPlacementFound, compute_plan
from planner.domain.errors import PlannerError
from planner.domain.plan import Incumbent
from planner.serialization import problem_from_dict

logger = logging.getLogger(__name__)
# How long a cancelled search may go on before it hears of it.
CANCEL_POLL_S = 0.1
# Bounds improve many times a second; one row a second is enough for the chart.
BOUND_INTERVAL_S = 1.0


class SearchKeeper:
    """Context manager around a search: its `CancelToken` and its `Progress`.

    `lost` says whether the lease went to another attempt; the search was then told to stop.
    """

    def __init__(self, *, run_id: int, attempt: int, elapsed_before_s: float) -> None:
        self._run_id = run_id
        self._attempt = attempt
        self._elapsed_before_s = elapsed_before_s
        self._reported: queue.SimpleQueue[Incumbent] = queue.SimpleQueue()
        self._to_write: list[Incumbent] = []
        self._better_bound: Incumbent | None = None
        self._best_flow = 0.0
        self._written_s = -BOUND_INTERVAL_S
        self._stop_search = threading.Event()
        self._search_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"plan-run-{run_id}", daemon=True)
        self.lost = False

    def is_cancelled(self) -> bool:
        return self._stop_search.is_set()

    def report(self, incumbent: Incumbent, /) -> None:
        self._reported.put(incumbent)

    def __enter__(self) -> "SearchKeeper":
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

    def _run(self) -> None:
        renewed_s = time.monotonic()
        try:
            while not self.lost:
                ended = self._search_ended.wait(CANCEL_POLL_S)
                try:
                    self._write_reported(ended=ended)
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
                    logger.warning("plan run %s: database unreachable", self._run_id, exc_info=True)
                    connection.close()
                    if ended:
                        return
        finally:
            connection.close()

    def _renew(self) -> None:
        leases.renew(PlanRun, task_id=self._run_id, attempt=self._attempt, now=timezone.now())

    def _look_for_cancel(self) -> None:
        if PlanRun.objects.filter(pk=self._run_id, cancel_requested=True).exists():
            self._stop_search.set()

    def _write_reported(self, *, ended: bool) -> None:
        """Write better placements at once, mere bounds once in `BOUND_INTERVAL_S`."""
        while not self._reported.empty():
            incumbent = self._reported.get()
            if incumbent.flow_tokens_per_s > self._best_flow:
                self._best_flow = incumbent.flow_tokens_per_s
                self._to_write.append(incumbent)
                self._better_bound = None
            else:
                self._better_bound = incumbent
        now_s = time.monotonic()
        if self._better_bound and (ended or now_s - self._written_s >= BOUND_INTERVAL_S):
            self._to_write.append(self._better_bound)
            self._better_bound = None
        if self._to_write:
            attempts.record_incumbents(
                run_id=self._run_id,
                attempt=self._attempt,
                incumbents=self._to_write,
                elapsed_before_s=self._elapsed_before_s,
            )
            self._to_write = []
            self._written_s = now_s


def solve(*, run_id: int) -> None:
    """Claim the run, search, finish it. Does nothing if it is owned, finished or not its turn."""
    attempt = attempts.claim(run_id=run_id, now=timezone.now())
    if attempt is None:
        return
    run = PlanRun.objects.get(pk=run_id)
    try:
        if attempt > attempts.MAX_ATTEMPTS:
            _give_up(run, attempt=attempt)
        else:
            _search(run, attempt=attempt)
    except leases.LostLease as lost:
        logger.info("%s; its answer is dropped", lost)


def _search(run: PlanRun, *, attempt: int) -> None:
    keeper = SearchKeeper(
        run_id=run.pk, attempt=attempt, elapsed_before_s=_age_s(run, now=timezone.now())
    )
    try:
        with keeper:
            plan = compute_plan(
                problem_from_dict(run.problem),
                options=options_from_json(run.options),
                progress=keeper.report,
                cancel=keeper,
                best_known=attempts.best_incumbent(run.pk),
            )
    except NoPlacementFound as error:
        status = PlanRun.Status.CANCELLED if keeper.is_cancelled() else PlanRun.Status.FAILED
        _finish_without_plan(run, attempt=attempt, status=status, error=str(error))
    except PlannerError as error:
        _finish_without_plan(run, attempt=attempt, status=PlanRun.Status.FAILED, error=str(error))
    except Exception as error:
        text = f"unexpected {type(error).__name__}: {error}; see the worker's log"
        _finish_without_plan(run, attempt=attempt, status=PlanRun.Status.FAILED, error=text)
        raise
    else:
        attempts.finish_with_plan(run=run, attempt=attempt, plan=plan, now=timezone.now())


def _give_up(run: PlanRun, *, attempt: int) -> None:
    text = (
        f"the worker died {attempts.MAX_ATTEMPTS} times while solving this run; give the worker "
        "more memory, or prune links or shorten the time limit"
    )
    _finish_without_plan(run, attempt=attempt, status=PlanRun.Status.FAILED, error=text)


def _finish_without_plan(run: PlanRun, *, attempt: int, status: PlanRun.Status, error: str) -> None:
    attempts.finish_without_plan(
        run=run, attempt=attempt, status=status, error=error, now=timezone.now()
    )


def _age_s(run: PlanRun, *, now: datetime) -> float:
    """Seconds since the first attempt began."""
    return (now - run.started_at).total_seconds() if run.started_at else 0.0
