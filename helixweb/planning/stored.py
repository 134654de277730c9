"""Plans and problems as the planner has them, and what is made of them, kept once read.

A stored plan never changes, and reading one of a thousand nodes takes longer than a whole page
may. The time of its making is part of what names it: a database that was set back gives numbers
again.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from django.utils.translation import get_language

from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import DEFAULTS, options_from_json
from planner import Plan as DomainPlan
from planner import PlanOptions, Problem
from planner.serialization import plan_from_dict, problem_from_dict

Made = TypeVar("Made")
# A few MB each where there are a thousand nodes.
KEPT = 16


def stored_plan(row: Plan) -> DomainPlan:
    """The plan in `row.document`; the column is read only if the plan is not cached.

    A plan stored before plans had their hop limit takes it from the options of its search.
    """
    return _plan(row.pk, row.created_at)


def stored_problem(row: Plan | PlanRun) -> Problem:
    """The problem of a plan; the column is read only if the problem is not cached."""
    return _problem(type(row), row.pk, row.created_at)


def running_options(row: Plan) -> PlanOptions:
    """Options of a search around the plan: those of its own search, for pipelines.

    The objective is the flow if the forecast is that it serves nothing, or if it has instances.
    """
    asked, plan = options_from_json(row.run.options) if row.run else DEFAULTS, stored_plan(row)
    if plan.forecast is None or plan.instances:
        return asked.for_flow
    return replace(asked, method="pipelines")


def kept(make: Callable[[Problem, DomainPlan], Made]) -> Callable[[Plan], Made]:
    """Cache results of `make` by stored plan and language of the reader."""

    @lru_cache(maxsize=KEPT)
    def made(pk: int, created_at: datetime, _language: str | None) -> Made:
        return make(_problem(Plan, pk, created_at), _plan(pk, created_at))

    return lambda row: made(row.pk, row.created_at, get_language())


@lru_cache(maxsize=KEPT)
def _plan(pk: int, created_at: datetime) -> DomainPlan:
    document, options = Plan.unscoped.values_list("document", "run__options").get(
        pk=pk, created_at=created_at
    )
    plan = plan_from_dict(document)
    if plan.max_hops is not None or options is None:
        return plan
    return replace(plan, max_hops=options_from_json(options).rules.max_hops)


@lru_cache(maxsize=KEPT)
def _problem(model: type[Plan | PlanRun], pk: int, created_at: datetime) -> Problem:
    problems = model.unscoped.values_list("problem", flat=True)
    return problem_from_dict(problems.get(pk=pk, created_at=created_at))
