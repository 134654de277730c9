"""Pages about plans: what limits one, what it delivers, comparing, what if, replanning, mixes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common import jobs
from helixweb.common.own_turns import in_own_turn
from helixweb.common.pages import by_htmx, follows_events, form_page, refusals_shown
from helixweb.common.queries import parsed_id, query_id
from helixweb.inventory.models import Cluster
from helixweb.planning.comparing import (
    MOST_PLANS,
    NothingToCompare,
    compare,
    plans_to_choose,
    plans_to_compare,
)
from helixweb.planning.forecasts import forecast_context
from helixweb.planning.forms import (
    ExplanationForm,
    MixForm,
    ReplanForm,
    SimulationForm,
    WhatIfForm,
    initial_from,
)
from helixweb.planning.models import ModelMix, Plan, PlanRun, Simulation
from helixweb.planning.objectives import objective_figure
from helixweb.planning.options import DEFAULTS
from helixweb.planning.presentation import explanation_of, num_node_kinds
from helixweb.planning.services import starting, studies
from helixweb.planning.what_if import answer_what_if
from planner import PlannerError, PlanOptions

REPLAN_S = 10.0


def studies_context(request: HttpRequest, plan: Plan) -> dict[str, Any]:
    """Context of a plan's cards; `?simulation=` chooses the one shown in detail."""
    explanation = explanation_of(plan)
    return {
        "plan": plan,
        "explanation": explanation,
        "limits": explanation.sentences if explanation else (),
        "explanation_form": ExplanationForm(),
        "num_node_kinds": num_node_kinds(plan),
        "simulation_form": SimulationForm(),
        **forecast_context(plan, asked=query_id(request, "simulation") or 0),
    }


@needs(VIEWER, OPERATOR, row=Plan)
def explanation(request: HttpRequest, plan: Plan) -> HttpResponse:
    """GET: the card, which htmx swaps in. POST: have the plan explained again."""
    if request.method == "GET":
        return render(request, "planning/_explanation.html", studies_context(request, plan))
    form = ExplanationForm(request.POST)
    if _is_valid(request, form):
        with refusals_shown(request):
            studies.explain_again(plan, **form.cleaned_data)
    return _to_plan(plan)


@needs(VIEWER, OPERATOR, row=Plan)
def simulations(request: HttpRequest, plan: Plan) -> HttpResponse:
    """GET: the card's results, which htmx swaps in. POST: simulate again."""
    if request.method == "GET":
        return render(request, "planning/_simulated.html", studies_context(request, plan))
    form = SimulationForm(request.POST)
    if _is_valid(request, form):
        with refusals_shown(request):
            studies.start_simulation(plan, form.request(), user=request.user)
            return _to_plan(plan, part="#forecast")
    return _to_plan(plan)


def ending(
    of: type[Any], end: Callable[[Any], bool], text: str, *, page: str = "plan-run"
) -> Callable[..., HttpResponse]:
    """A view that ends a job, or says why it could not, and shows the `page` of the job."""

    @needs(change=OPERATOR, row=of)
    def view(request: HttpRequest, row: Any) -> HttpResponse:
        if not end(row):
            messages.info(request, _(text))
        if isinstance(row, Simulation):
            return _to_plan(row.plan, part="#forecast")
        return redirect(page, row.pk)

    return view


simulation_cancel = ending(
    Simulation, jobs.cancel, gettext_noop("The simulation had ended already.")
)
mix_cancel = ending(
    ModelMix, jobs.cancel, gettext_noop("The search had ended already."), page="model-mix"
)


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


@needs(OPERATOR, OPERATOR, row=Plan)
@in_own_turn
def what_if(request: HttpRequest, plan: Plan) -> HttpResponse:
    """POST estimates the changed copy at once; with `solve` a search on it is started."""
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
                options = replace(DEFAULTS, time_limit_s=form.cleaned_data["time_limit_s"])
                run = starting.start_what_if(plan, edits, options=options, user=request.user)
                return redirect("plan-run", run.pk)
    context = {"plan": plan, "form": form, "answer": answer}
    status = 422 if form.errors else 200
    return render(request, "planning/what_if.html", context, status=status)


def _is_valid(request: HttpRequest, form: forms.Form) -> bool:
    """Validate a form; its errors become messages on the next page."""
    for name, errors in form.errors.items():
        messages.error(request, f"{form[name].label}: {errors[0]}")
    return form.is_valid()


def _to_plan(plan: Plan, *, part: str = "") -> HttpResponse:
    """Back to the page with the plan, and there to the card with this id."""
    if plan.run_id is None:
        return redirect("plan-runs")
    return redirect(f"{reverse('plan-run', args=[plan.run_id])}{part}")


@needs(OPERATOR, OPERATOR, row=Plan)
@in_own_turn
def replan_plan(request: HttpRequest, plan: Plan) -> HttpResponse:
    """Page of changes since the plan, and its value now; POST searches around it."""
    cluster = plan.cluster
    form = ReplanForm(request.POST, cluster=cluster) if request.method == "POST" else None
    if form is not None and form.is_valid():
        with refusals_shown(request, form):
            run = starting.start_replan(
                plan,
                options=form.plan_options(),
                budget_bytes=form.cleaned_data["budget_bytes"],
                user=request.user,
            )
            return redirect("plan-run", run.pk)
    context = {"plan": plan, **_standing(plan)}
    form = form or ReplanForm(initial=_initial(context["search"]), cluster=cluster)
    return form_page(request, "planning/replan.html", form, **context)


@needs(change=OPERATOR, row=PlanRun)
def replan_adopt(request: HttpRequest, run: PlanRun) -> HttpResponse:
    """Make a plan of another of a replanning's answers, and show it."""
    number = parsed_id(request.POST.get("point", ""))
    with refusals_shown(request):
        adopted = starting.adopt_point(run, -1 if number is None else number, user=request.user)
        return redirect("plan-run", adopted.pk)
    return redirect("plan-run", run.pk)


def _standing(plan: Plan) -> dict[str, Any]:
    """Context: changes, and the value without moves, or why there is none."""
    try:
        found = starting.unmoved(plan, now=timezone.now())
    except PlannerError as error:
        return {"search": None, "standing_error": str(error)}
    return found | {
        name: objective_figure(found["objective"], found[name]) for name in ("planned", "value")
    }


def _initial(search: PlanOptions | None) -> dict[str, Any]:
    return {**(initial_from(search) if search else {}), "time_limit_s": REPLAN_S}


@needs(OPERATOR, OPERATOR, row=Cluster, by="cluster_pk")
def mix_new(request: HttpRequest, cluster: Cluster) -> HttpResponse:
    """Choose weights for the models that the cluster has profiles for; POST starts and shows it."""
    form = MixForm(request.POST if request.method == "POST" else None, cluster=cluster)
    if form.is_valid():
        with refusals_shown(request, form):
            mix = studies.start_model_mix(
                cluster=cluster,
                weights=form.weights(),
                options=form.plan_options(),
                user=request.user,
            )
            return redirect("model-mix", mix.pk)
    weights = form.weight_fields()
    return form_page(request, "planning/mix_new.html", form, cluster=cluster, weights=weights)


@needs(VIEWER, of=ModelMix)
@follows_events
def mix(request: HttpRequest, pk: int) -> HttpResponse:
    """A mix's page: its progress, and the plan of each model once it has ended."""
    row = get_object_or_404(
        ModelMix.objects.within(request).select_related("cluster", "created_by"), pk=pk
    )
    context = {
        "mix": row,
        "shares": row.shares.select_related("model"),
        "runs": row.runs.select_related("model", "plan").order_by("pk"),
    }
    return render(request, f"planning/{'_mix' if by_htmx(request) else 'mix'}.html", context)
