"""Pages of plans beside each other, and of plans on changed copies of their clusters."""

from dataclasses import replace

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from helixweb.common.own_turns import page_in_own_turn
from helixweb.planning import services
from helixweb.planning.comparing import compare
from helixweb.planning.models import Plan
from helixweb.planning.options import DEFAULTS
from helixweb.planning.study_forms import WhatIfForm
from planner.domain.errors import PlannerError


@require_GET
@page_in_own_turn
def compare_plans(request: HttpRequest) -> HttpResponse:
    """`?plan=&plan=`: two to four plans side by side."""
    try:
        rows = services.plans_to_compare(request.GET.getlist("plan"))
    except services.NothingToCompare as error:
        messages.error(request, str(error))
        return redirect("plan-runs")
    return render(request, "planning/compare.html", {"comparison": compare(rows)})


@require_http_methods(["GET", "POST"])
@page_in_own_turn
def what_if(request: HttpRequest, pk: int) -> HttpResponse:
    """POST estimates the changed copy at once; with `solve` a search on it is started."""
    plan = get_object_or_404(
        Plan.objects.select_related("cluster", "model", "run").defer("document", "run__problem"),
        pk=pk,
    )
    form = WhatIfForm(request.POST if request.method == "POST" else None)
    answer = None
    if form.is_valid():
        edits = form.edits()
        try:
            answer = services.answer_what_if(plan, edits)
            if "solve" in request.POST:
                limit_s = form.cleaned_data["time_limit_s"]
                run = services.start_what_if(
                    plan,
                    answer.problem,
                    changes=edits.sentence,
                    options=replace(DEFAULTS, time_limit_s=limit_s),
                    user=request.user,
                )
                return redirect("plan-run", run.pk)
        except PlannerError as error:
            form.add_error(None, str(error))
    nodes = plan.problem["nodes"]
    context = {
        "plan": plan,
        "form": form,
        "answer": answer,
        "profiles": sorted(plan.problem["compute_profiles"]),
        "regions": sorted({node["region"] for node in nodes}),
        "nodes": [node["name"] for node in nodes],
    }
    status = 422 if form.errors else 200
    return render(request, "planning/what_if.html", context, status=status)
