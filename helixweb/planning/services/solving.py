"""The work of a plan run: the planner in this thread, lease and database in another."""

import queue
import time
from dataclasses import replace

from django.db import transaction
from django.utils import timezone

from helixweb.common import jobs
from helixweb.common.leases import Lease
from helixweb.planning import incumbents
from helixweb.planning.models import PlanRun
from helixweb.planning.services.searches import search_for
from planner.domain.plan import Incumbent

Status = PlanRun.Status
# Bounds improve many times a second; one row a second is enough for the chart.
BOUND_INTERVAL_S = 1.0
ACCEPTED = "accepted"


def solve(run: PlanRun, lease: Lease) -> jobs.Outcome:
    """Search as the run asks; better placements are written as they are found."""
    recorder = Recorder(run, lease)
    lease.write = recorder.write
    found = search_for(run, progress=recorder.report, cancel=lease)
    run.refresh_from_db(fields=["accept_requested"])
    plan = found.plan
    if plan.stop_reason == "cancelled" and run.accept_requested:
        plan = replace(plan, stop_reason=ACCEPTED)
    return incumbents.outcome_of(run, plan, points=found.points)


def accept_best_so_far(run: PlanRun) -> bool:
    """End the search as a success with the best it has; False if it has none or does not run."""
    with transaction.atomic():
        accepted = bool(
            PlanRun.unscoped.filter(
                pk=run.pk, status=Status.RUNNING, flow_tokens_per_s__isnull=False
            ).update(cancel_requested=True, accept_requested=True)
        )
        if accepted:
            run.refresh_from_db(fields=["status", "cancel_requested", "accept_requested"])
            jobs.announce(run, run.status, cancel_requested=True)
    return accepted


class Recorder:
    """The search's `Progress`: its callbacks queue, the lease's thread writes."""

    def __init__(self, run: PlanRun, lease: Lease) -> None:
        self._run_id, self._lease = run.pk, lease
        self._elapsed_before_s = run.age_s(now=timezone.now())
        self._reported: queue.SimpleQueue[Incumbent] = queue.SimpleQueue()
        self._to_write: list[Incumbent] = []
        self._better_bound: Incumbent | None = None
        self._best_value = 0.0
        self._written_s = -BOUND_INTERVAL_S

    def report(self, incumbent: Incumbent, /) -> None:
        self._reported.put(incumbent)

    def write(self, ended: bool) -> None:
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
            incumbents.record_incumbents(
                self._lease,
                self._run_id,
                self._to_write,
                elapsed_before_s=self._elapsed_before_s,
            )
            self._to_write = []
            self._written_s = now_s
