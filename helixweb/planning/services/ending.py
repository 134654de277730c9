"""Ends a search early with the best it has."""

from django.db import transaction

from helixweb.common import jobs
from helixweb.planning.models import PlanRun


def accept_best_so_far(run: PlanRun) -> bool:
    """End the search as a success with the best it has; False if it has none or does not run."""
    with transaction.atomic():
        accepted = bool(
            PlanRun.objects.filter(
                pk=run.pk, status=PlanRun.Status.RUNNING, flow_tokens_per_s__isnull=False
            ).update(cancel_requested=True, accept_requested=True)
        )
        if accepted:
            run.refresh_from_db(fields=["status", "cancel_requested", "accept_requested"])
            jobs.announce(run, run.status, cancel_requested=True)
    return accepted
