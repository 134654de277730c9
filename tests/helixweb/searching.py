"""Does a worker's part of a plan run, step by step and without a worker."""

from collections.abc import Sequence
from typing import Any

from helixweb.common import jobs
from helixweb.common.jobs import Lease
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning import incumbents
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_from_json
from helixweb.planning.services import starting
from planner.domain import plan as domain
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.replanning.answers import ReplanPoint
from planner.serialization import problem_from_dict

# What a form sends of how to search, where nothing is changed.
SEARCH = {
    "time_limit_s": "2", "placer": "auto", "solver": "auto", "relative_gap": "0.1", "seed": "0",
    "warm_start": "best", "partial_inference": "on", "objective": "flow",
}  # fmt: skip


def begun(cluster: Cluster, user: Any, options: PlanOptions, **more: Any) -> PlanRun:
    """A run for the only model there is, queued."""
    model = LanguageModel.objects.get()
    return starting.start_plan_run(cluster=cluster, model=model, options=options, user=user, **more)


def claimed(run: PlanRun) -> Lease:
    """A new attempt at the run."""
    attempt = jobs.claim(run)
    assert attempt is not None
    return Lease(run, attempt)


def record(lease: Lease, run: PlanRun, *found: domain.Incumbent) -> None:
    incumbents.record_incumbents(lease, run.pk, found, elapsed_before_s=0.0)


def found_for(run: PlanRun, lease: Lease) -> domain.Plan:
    """The plan that the run asks for; its incumbents are recorded."""
    return compute_plan(
        problem_from_dict(run.problem),
        options=options_from_json(run.options),
        progress=lambda incumbent: record(lease, run, incumbent),
        cancel=NeverCancelled(),
    )


def end_with(
    run: PlanRun, lease: Lease, plan: domain.Plan, *, points: Sequence[ReplanPoint] = ()
) -> Plan:
    """End the attempt with this plan."""
    jobs.end(run, lease.attempt, incumbents.outcome_of(run, plan, points=points))
    run.refresh_from_db()
    return Plan.unscoped.get(run=run)


def searched(run: PlanRun) -> Plan:
    """The plan of the whole run."""
    lease = claimed(run)
    return end_with(run, lease, found_for(run, lease))
