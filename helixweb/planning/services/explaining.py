"""Explains a plan: what limits its flow; by its objective, what survives a loss or more brings."""

from dataclasses import asdict

from django.db import transaction

from helixweb.common import jobs
from helixweb.common.jobs import Lease
from helixweb.common.refusals import Conflict
from helixweb.planning.models import Explanation, Plan
from helixweb.planning.stored import running_options, stored_plan, stored_problem
from planner import explain_min_cut, marginal_values, survival, zero_moves

_FOUND = ("objective", "limits", "survival_tokens_per_s", "worst_node", "values")


def explain_again(plan: Plan, *, search_s: float) -> Explanation:
    """Queue an explanation with `search_s` seconds of replanning for each kind of node.

    What is known is shown until it has ended. It is a new row: a worker that lost the old one can
    write nothing into it. Raises Conflict while one is under way.
    """
    with transaction.atomic():
        known = Explanation.unscoped.select_for_update().filter(plan=plan).first()
        if known is not None and not known.is_finished:
            raise Conflict(f"Plan {plan.pk} is being explained already; wait for the end.")
        kept = {name: getattr(known, name) for name in _FOUND if known is not None}
        if known is not None:
            known.delete()
        asked = Explanation.objects.create(plan=plan, search_s=search_s, **kept)
        jobs.wake(asked)
    return asked


def explain(row: Explanation, lease: Lease) -> jobs.Outcome:
    """The job: work out what explains the row's plan."""
    problem, plan = stored_problem(row.plan), stored_plan(row.plan)
    options = running_options(row.plan).for_running(plan)
    kept, flow = zero_moves(problem, plan.placement, options=options)
    worst = survival(problem, plan.placement, options=options)
    values = marginal_values(
        problem, plan.placement, options=options, search_s=row.search_s, cancel=lease
    )
    return jobs.Outcome(
        columns={
            "objective": options.objective,
            "limits": list(explain_min_cut(problem, kept, flow)),
            "survival_tokens_per_s": worst.value,
            "worst_node": worst.worst_node,
            "values": [{**asdict(value), "gain": value.gain} for value in values],
        }
    )
