"""One attempt at a plan run: the planner in this thread, lease and database in another."""

import logging
import queue
import time
from dataclasses import replace
from datetime import datetime

from django.utils import timezone

from helixweb.common import leases
from helixweb.planning import attempts
from helixweb.planning.keeper import LeaseKeeper
from helixweb.planning.models import PlanRun
from helixweb.planning.searches import search_for
from planner.compute_plan import NoPlacementFound
from planner.domain.errors import PlannerError
from planner.domain.plan import Incumbent

logger = logging.getLogger(__name__)
# Bounds improve many times a second; one row a second is enough for the chart.
BOUND_INTERVAL_S = 1.0
ACCEPTED = "accepted"


class SearchKeeper(LeaseKeeper):
    """Writes what the search reports as well: its `Progress`.

    The search's callbacks touch no database: `report` queues, the keeper's thread writes.
    """

    def __init__(self, *, run_id: int, attempt: int, elapsed_before_s: float) -> None:
        super().__init__(PlanRun, task_id=run_id, attempt=attempt)
        self._elapsed_before_s = elapsed_before_s
        self._reported: queue.SimpleQueue[Incumbent] = queue.SimpleQueue()
        self._to_write: list[Incumbent] = []
        self._better_bound: Incumbent | None = None
        self._best_value = 0.0
        self._written_s = -BOUND_INTERVAL_S

    def report(self, incumbent: Incumbent, /) -> None:
        self._reported.put(incumbent)

    def write(self, *, ended: bool) -> None:
        """Write better placements at once, mere bounds once in `BOUND_INTERVAL_S`."""
        while not self._reported.empty():
            incumbent = self._reported.get()
            value = incumbent.objective_value
            value = incumbent.flow_tokens_per_s if value is None else value
            if value > self._best_value:
                self._best_value = value
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
                run_id=self._task_id,
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
    run = PlanRun.objects.select_related("replan__running_plan").get(pk=run_id)
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
            found = search_for(run, progress=keeper.report, cancel=keeper)
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
        run.refresh_from_db(fields=["accept_requested"])
        plan = found.plan
        if plan.stop_reason == "cancelled" and run.accept_requested:
            plan = replace(plan, stop_reason=ACCEPTED)
        attempts.finish_with_plan(
            run=run, attempt=attempt, plan=plan, points=found.points, now=timezone.now()
        )


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
