"""Plans beside each other, and plans on changed copies of their clusters. Reads only."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from helixweb.common.queries import parsed_id
from helixweb.planning.comparing import MOST_PLANS
from helixweb.planning.models import Plan
from helixweb.planning.stored import stored_plan, stored_problem
from helixweb.planning.what_if import Edits, Worth, carried_over, edited, worth
from planner.domain.errors import PlannerError
from planner.domain.placement import Placement
from planner.domain.problem import Problem

PLANS_OFFERED = 50


class NothingToCompare(PlannerError, ValueError):
    """Too few or too many plans, or some that are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The changed problem, and what the plan is worth on it and was before."""

    problem: Problem
    before: Worth
    after: Worth


def plans_to_choose(chosen: Sequence[int]) -> list[Plan]:
    """The newest plans and those `chosen`, newest first, as choices of a list."""
    newest = list(Plan.objects.order_by("-pk").values_list("pk", flat=True)[:PLANS_OFFERED])
    rows = Plan.objects.select_related("cluster", "model").defer("problem", "document")
    return list(rows.filter(pk__in=[*newest, *chosen]).order_by("-pk"))


def plans_to_compare(ids: Sequence[str]) -> list[Plan]:
    """The plans in that order. Raises NothingToCompare."""
    wanted = list(dict.fromkeys(parsed_id(text) for text in ids))
    if not 2 <= len(wanted) <= MOST_PLANS:
        raise NothingToCompare(
            _("the plans chosen are %(count)s; choose 2 to %(most_plans)s")
            % {"count": len(wanted), "most_plans": MOST_PLANS}
        )
    rows = Plan.objects.select_related("cluster", "model", "run").defer(
        "problem", "document", "run__problem"
    )
    found = {row.pk: row for row in rows.filter(pk__in=[pk for pk in wanted if pk is not None])}
    missing = [text for text, pk in zip(ids, wanted, strict=False) if pk not in found]
    if missing:
        raise NothingToCompare(
            _("there is no plan %(missing)s; choose others") % {"missing": repr(missing[0])}
        )
    return [found[pk] for pk in wanted if pk is not None]


def answer_what_if(plan: Plan, edits: Edits) -> WhatIfAnswer:
    """Milliseconds: no search. Raises InvalidProblem and whatever the changed problem lacks."""
    problem, stored = stored_problem(plan), stored_plan(plan)
    changed = edited(problem, edits)
    carried = carried_over(problem, stored.placement, changed)

    def worth_of(where: Problem, placement: Placement) -> Worth:
        return worth(
            where,
            placement,
            partial_inference=stored.partial_inference,
            max_hops=stored.max_hops,
        )

    return WhatIfAnswer(
        problem=changed,
        before=worth_of(problem, stored.placement),
        after=worth_of(changed, carried),
    )
