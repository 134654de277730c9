"""One attempt at explaining a plan: what limits it, what survives a loss, what more would bring."""

import logging
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.utils import timezone

from helixweb.common import events, leases
from helixweb.planning import turns
from helixweb.planning.keeper import LeaseKeeper
from helixweb.planning.models import Explanation
from helixweb.planning.options import DEFAULTS, options_from_json
from planner.domain.errors import PlannerError
from planner.explain import MarginalValue, explain_min_cut, marginal_values
from planner.placers.base import CancelToken
from planner.replan import zero_moves
from planner.robust import survival
from planner.serialization import plan_from_dict, problem_from_dict

logger = logging.getLogger(__name__)
# An explanation that has taken its worker down this often is not tried again.
MAX_ATTEMPTS = 3
Status = Explanation.Status


def explain(*, explanation_id: int) -> None:
    """Claim it, work it out, store it. Nothing if it is owned, finished, or must wait."""
    attempt = turns.claim(Explanation, task_id=explanation_id, now=timezone.now())
    if attempt is None:
        return
    row = Explanation.objects.select_related("plan__run").get(pk=explanation_id)
    try:
        _attempt(row, attempt=attempt)
    except leases.LostLease as lost:
        logger.info("%s; its answer is dropped", lost)


def _attempt(row: Explanation, *, attempt: int) -> None:
    if attempt > MAX_ATTEMPTS:
        error = f"the worker died {MAX_ATTEMPTS} times while explaining this plan"
        _finish(row, attempt=attempt, status=Status.FAILED, error=error)
        return
    try:
        with LeaseKeeper(Explanation, task_id=row.pk, attempt=attempt) as keeper:
            found = _explained(row, cancel=keeper)
    except PlannerError as error:
        _finish(row, attempt=attempt, status=Status.FAILED, error=str(error))
    else:
        _finish(row, attempt=attempt, status=Status.SUCCEEDED, **found)


def waiting_ids(run_id: int) -> list[int]:
    """Explanations of the run's plan that nobody works on yet."""
    waiting = Explanation.objects.filter(plan__run=run_id, status=Status.QUEUED)
    return list(waiting.values_list("pk", flat=True))


def _explained(row: Explanation, *, cancel: CancelToken) -> dict[str, Any]:
    problem, plan = problem_from_dict(row.plan.problem), plan_from_dict(row.plan.document)
    options = options_from_json(row.plan.run.options) if row.plan.run else DEFAULTS
    options = options.for_running(plan)
    standing = zero_moves(problem, plan.placement, options=options)
    worst = survival(problem, plan.placement, options=options)
    values = marginal_values(
        problem, plan.placement, options=options, search_s=row.search_s, cancel=cancel
    )
    return {
        "limits": list(explain_min_cut(problem, standing.placement, standing.flow)),
        "survival_tokens_per_s": worst.flow_tokens_per_s,
        "worst_node": worst.worst_node,
        "values": [_value_to_json(value) for value in values],
    }


def _value_to_json(value: MarginalValue) -> dict[str, Any]:
    return {**asdict(value), "gain": value.gain}


def _finish(row: Explanation, *, attempt: int, status: Explanation.Status, **fields: Any) -> None:
    with transaction.atomic():
        leases.finish(
            Explanation,
            task_id=row.pk,
            attempt=attempt,
            status=status,
            now=timezone.now(),
            **fields,
        )
        events.emit(row.topic, "explanation", {"plan": row.plan_id, "status": status.value})
