"""Pages that lead from a plan that runs to the next one."""

from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from helixweb.access.needs import OPERATOR, needs
from helixweb.common.own_turns import in_own_turn
from helixweb.common.page_refusals import refusals_shown
from helixweb.common.queries import parsed_id
from helixweb.planning.forms import ReplanForm, initial_from, node_names
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import DEFAULTS, options_from_json
from helixweb.planning.services import replanning
from planner.domain.errors import PlannerError
from planner.plan_options import PlanOptions

TIME_LIMIT_S = 10.0


@needs(OPERATOR, OPERATOR, of=Plan)
@in_own_turn
def replan_plan(request: HttpRequest, pk: int) -> HttpResponse:
    """What has changed since the plan, and what it carries now; POST searches around it."""
    plan = get_object_or_404(
        Plan.objects.within(request)
        .select_related("cluster", "model", "run")
        .defer("problem", "document", "run__problem"),
        pk=pk,
    )
    nodes = node_names(plan.cluster)
    form = ReplanForm(request.POST, nodes=nodes) if request.method == "POST" else None
    if form is not None and form.is_valid():
        with refusals_shown(request, form):
            run = replanning.start_replan(
                plan,
                options=form.plan_options(),
                budget_bytes=form.cleaned_data["budget_bytes"],
                user=request.user,
            )
            return redirect("plan-run", run.pk)
    context = {"plan": plan, **_standing(plan)}
    context["form"] = form or ReplanForm(initial=_initial(context["search"]), nodes=nodes)
    status = 200 if form is None else 422
    return render(request, "planning/replan.html", context, status=status)


@needs(change=OPERATOR, of=PlanRun)
def replan_adopt(request: HttpRequest, pk: int) -> HttpResponse:
    """Make a plan of another of a replanning's answers, and show it."""
    run = get_object_or_404(PlanRun.objects.within(request).select_related("replan"), pk=pk)
    number = parsed_id(request.POST.get("point", ""))
    with refusals_shown(request):
        adopted = replanning.adopt_point(run, -1 if number is None else number, user=request.user)
        return redirect("plan-run", adopted.pk)
    return redirect("plan-run", pk)


def _standing(plan: Plan) -> dict[str, Any]:
    """What changed, and the flow without moves, or why there is none."""
    try:
        changes = replanning.changes_since(plan, now=timezone.now())
        search = _search_without(plan, changes)
        unmoved = replanning.flow_without_moves(plan, changes, options=search)
    except PlannerError as error:
        return {"search": None, "standing_error": str(error)}
    return {"changes": changes, "search": search, "unmoved_tokens_per_s": unmoved}


def _search_without(plan: Plan, changes: replanning.Changes) -> PlanOptions:
    """The options that the plan was searched for with, without the nodes that are silent."""
    search = options_from_json(plan.run.options) if plan.run else DEFAULTS
    known = {node.name for node in changes.problem.cluster.nodes}
    rules = search.rules.about(known - set(changes.silent))
    excluded = rules.excluded_nodes | set(changes.silent)
    return replace(search, rules=replace(rules, excluded_nodes=excluded))


def _initial(search: PlanOptions | None) -> dict[str, Any]:
    return {**(initial_from(search) if search else {}), "time_limit_s": TIME_LIMIT_S}
