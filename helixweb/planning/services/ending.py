"""Ends plan runs before their time: give one up, or take what it has."""

from django.db import transaction
from django.utils import timezone

from helixweb.common import events, leases
from helixweb.planning.models import PlanRun


def cancel_plan_run(run: PlanRun) -> bool:
    """Ask the search to end with its best so far; False if it had ended already."""
    with transaction.atomic():
        cancelled = leases.request_cancel(PlanRun, task_id=run.pk, now=timezone.now())
        if cancelled:
            _announce_end(run)
    return cancelled


def accept_best_so_far(run: PlanRun) -> bool:
    """End the search as a success with the best it has; False if it has none or does not run."""
    with transaction.atomic():
        accepted = bool(
            PlanRun.objects.filter(
                pk=run.pk, status=PlanRun.Status.RUNNING, flow_tokens_per_s__isnull=False
            ).update(cancel_requested=True, accept_requested=True)
        )
        if accepted:
            _announce_end(run)
    return accepted


def _announce_end(run: PlanRun) -> None:
    run.refresh_from_db(fields=["status", "cancel_requested", "accept_requested", "finished_at"])
    content = {"run": run.pk, "status": run.status, "cancel_requested": True}
    events.emit(run.topic, "plan-run", content)
