"""Asks for what explains a plan."""

from django.db import transaction

from helixweb.common import jobs
from helixweb.common.refusals import Conflict
from helixweb.planning.models import Explanation, Plan


def explain_anew(plan: Plan, *, search_s: float) -> Explanation:
    """Queue an explanation with `search_s` seconds of replanning for each kind of node.

    What is known is shown until it has ended. It is a new row: a worker that lost the old one can
    write nothing into it. Raises Conflict while one is under way.
    """
    with transaction.atomic():
        known = Explanation.objects.select_for_update().filter(plan=plan).first()
        if known is not None and not known.is_finished:
            raise Conflict(f"Plan {plan.pk} is being explained already; wait for the end.")
        kept = {}
        if known is not None:
            kept = {
                name: getattr(known, name)
                for name in ("limits", "survival_tokens_per_s", "worst_node", "values")
            }
            known.delete()
        asked = Explanation.objects.create(plan=plan, search_s=search_s, **kept)
        jobs.wake(asked)
    return asked
