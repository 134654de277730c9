"""Plans and problems as the planner has them, kept once read.

A stored plan never changes, and reading one of a thousand nodes takes longer than a whole page
may. The time of its making is part of what names it: a database that was set back gives numbers
again.
"""

from datetime import datetime
from functools import lru_cache

from helixweb.planning.models import Plan
from planner.domain.plan import Plan as DomainPlan
from planner.domain.problem import Problem
from planner.serialization import plan_from_dict, problem_from_dict

# A few MB each where there are a thousand nodes.
KEPT = 16


def stored_plan(row: Plan) -> DomainPlan:
    """What `row.document` says; the column is read only if the plan is not kept."""
    return _plan(row.pk, row.created_at)


def stored_problem(row: Plan) -> Problem:
    """What the plan was computed for; the column is read only if the problem is not kept."""
    return _problem(row.pk, row.created_at)


@lru_cache(maxsize=KEPT)
def _plan(pk: int, created_at: datetime) -> DomainPlan:
    document = Plan.objects.values_list("document", flat=True).get(pk=pk, created_at=created_at)
    return plan_from_dict(document)


@lru_cache(maxsize=KEPT)
def _problem(pk: int, created_at: datetime) -> Problem:
    problem = Plan.objects.values_list("problem", flat=True).get(pk=pk, created_at=created_at)
    return problem_from_dict(problem)
