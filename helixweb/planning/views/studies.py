"""Pages about a plan: what limits it, what it delivers, how it compares with others, what if."""

from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common import jobs
from helixweb.common.own_turns import in_own_turn
from helixweb.common.page_refusals import refusals_shown
from helixweb.common.queries import parsed_id, query_id
from helixweb.planning.comparing import (
    MOST_PLANS,
    NothingToCompare,
    compare,
    plans_to_choose,
    plans_to_compare,
)
from helixweb.planning.forecasts import forecast_context
from helixweb.planning.forms import ExplanationForm, SimulationForm, WhatIfForm
from helixweb.planning.models import Plan, Simulation
from helixweb.planning.options import DEFAULTS
from helixweb.planning.presentation import explanation_of, num_node_kinds
from helixweb.planning.services import explaining, simulating, starting
from helixweb.planning.what_if import answer_what_if


def studies_context(request: HttpRequest, plan: Plan) -> dict[str, Any]:
    """What the cards of a plan show; `?simulation=` chooses which one in detail."""
    explanation = explanation_of(plan)
    return {
        "plan": plan,
        "explanation": explanation,
        "limits": explanation.limits if explanation else (),
        "explanation_form": ExplanationForm(),
        "num_node_kinds": num_node_kinds(plan),
        "simulation_form": SimulationForm(),
        **forecast_context(plan, asked=query_id(request, "simulation") or 0),
    }


@needs(VIEWER, OPERATOR, of=Plan)
def explanation(request: HttpRequest, pk: int) -> HttpResponse:
    """GET: the card, which htmx swaps in. POST: have the plan explained again."""
    plan = _plan(request, pk)
    if request.method == "GET":
        return render(request, "planning/_explanation.html", studies_context(request, plan))
    form = ExplanationForm(request.POST)
    if _is_valid(request, form):
        with refusals_shown(request):
            explaining.explain_again(plan, **form.cleaned_data)
    return _to_plan(plan)


@needs(VIEWER, OPERATOR, of=Plan)
def simulations(request: HttpRequest, pk: int) -> HttpResponse:
    """GET: the card's results, which htmx swaps in. POST: simulate again."""
    plan = _plan(request, pk)
    if request.method == "GET":
        return render(request, "planning/_simulated.html", studies_context(request, plan))
    form = SimulationForm(request.POST)
    if _is_valid(request, form):
        with refusals_shown(request):
            simulating.start_simulation(plan, form.request(), user=request.user)
            return _to_plan(plan, part="#forecast")
    return _to_plan(plan)


@needs(change=OPERATOR, of=Simulation)
def simulation_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """End a simulation."""
    row = get_object_or_404(Simulation.objects.within(request).select_related("plan"), pk=pk)
    if not jobs.cancel(row):
        messages.info(request, _("The simulation had ended already."))
    return _to_plan(row.plan, part="#forecast")


@needs(VIEWER)
@in_own_turn
def compare_plans(request: HttpRequest) -> HttpResponse:
    """`?plan=&plan=`: two to four plans side by side, chosen from lists on the page."""
    ids = [text for text in request.GET.getlist("plan") if text]
    comparison, refusal = None, ""
    try:
        comparison = compare(plans_to_compare(request, ids))
    except NothingToCompare as error:
        # With one plan so far, the page asks for the others.
        refusal = str(error) if len(ids) != 1 or parsed_id(ids[0]) is None else ""
    chosen = [pk for pk in map(parsed_id, ids[:MOST_PLANS]) if pk is not None]
    context = {
        "comparison": comparison,
        "refusal": refusal,
        "choices": plans_to_choose(request, chosen),
        "slots": list(enumerate(chosen + [None] * (MOST_PLANS - len(chosen)), start=1)),
    }
    return render(request, "planning/compare.html", context)


@needs(OPERATOR, OPERATOR, of=Plan)
@in_own_turn
def what_if(request: HttpRequest, pk: int) -> HttpResponse:
    """POST estimates the changed copy at once; with `solve` a search on it is started."""
    plan = get_object_or_404(
        Plan.objects.within(request)
        .select_related("cluster", "model", "run")
        .defer("document", "run__problem"),
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
        with refusals_shown(request, form):
            edits = form.edits()
            answer = answer_what_if(plan, edits)
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
    context = {"plan": plan, "form": form, "answer": answer}
    status = 422 if form.errors else 200
    return render(request, "planning/what_if.html", context, status=status)


def _plan(request: HttpRequest, pk: int) -> Plan:
    return get_object_or_404(Plan.objects.within(request).defer("problem", "document"), pk=pk)


def _is_valid(request: HttpRequest, form: forms.Form) -> bool:
    """What is wrong with the fields are messages on the next page."""
    for name, errors in form.errors.items():
        messages.error(request, f"{form[name].label}: {errors[0]}")
    return form.is_valid()


def _to_plan(plan: Plan, *, part: str = "") -> HttpResponse:
    """Back to the page with the plan, and there to the card with this id."""
    if plan.run_id is None:
        return redirect("plan-runs")
    return redirect(f"{reverse('plan-run', args=[plan.run_id])}{part}")
