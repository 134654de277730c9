"""Pages of plans beside each other, and of plans on changed copies of their clusters."""

from dataclasses import replace

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from helixweb.common.own_turns import page_in_own_turn
from helixweb.common.queries import parsed_id
from helixweb.planning.comparing import MOST_PLANS, compare
from helixweb.planning.models import Plan
from helixweb.planning.options import DEFAULTS
from helixweb.planning.services import imagining, starting
from helixweb.planning.study_forms import WhatIfForm
from planner.domain.errors import PlannerError


@require_GET
@page_in_own_turn
def compare_plans(request: HttpRequest) -> HttpResponse:
    """`?plan=&plan=`: two to four plans side by side, chosen from lists on the page."""
    ids = [text for text in request.GET.getlist("plan") if text]
    comparison, refusal = None, ""
    try:
        comparison = compare(imagining.plans_to_compare(ids))
    except imagining.NothingToCompare as error:
        # With one plan so far, the page asks for the others.
        refusal = str(error) if len(ids) != 1 or parsed_id(ids[0]) is None else ""
    chosen = [pk for pk in map(parsed_id, ids[:MOST_PLANS]) if pk is not None]
    context = {
        "comparison": comparison,
        "refusal": refusal,
        "choices": imagining.plans_to_choose(chosen),
        "slots": list(enumerate(chosen + [None] * (MOST_PLANS - len(chosen)), start=1)),
    }
    return render(request, "planning/compare.html", context)


@require_http_methods(["GET", "POST"])
@page_in_own_turn
def what_if(request: HttpRequest, pk: int) -> HttpResponse:
    """POST estimates the changed copy at once; with `solve` a search on it is started."""
    plan = get_object_or_404(
        Plan.objects.select_related("cluster", "model", "run").defer("document", "run__problem"),
        pk=pk,
    )
    nodes = plan.problem["nodes"]
    form = WhatIfForm(
        request.POST if request.method == "POST" else None,
        nodes=[node["name"] for node in nodes],
        profiles=sorted(plan.problem["compute_profiles"]),
        regions=sorted({node["region"] for node in nodes}),
    )
    answer = None
    if form.is_valid():
        try:
            edits = form.edits()
            answer = imagining.answer_what_if(plan, edits)
            if "solve" in request.POST:
                limit_s = form.cleaned_data["time_limit_s"]
                run = starting.start_what_if(
                    plan,
                    answer.problem,
                    changes=edits.sentence,
                    options=replace(DEFAULTS, time_limit_s=limit_s),
                    user=request.user,
                )
                return redirect("plan-run", run.pk)
        except PlannerError as error:
            form.add_error(None, str(error))
    context = {"plan": plan, "form": form, "answer": answer}
    status = 422 if form.errors else 200
    return render(request, "planning/what_if.html", context, status=status)
