"""The card of what a plan is forecast to deliver, and its simulations."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from helixweb.common import jobs
from helixweb.common.queries import query_id
from helixweb.planning.forecast_view import (
    headline_of,
    objective_words,
    simulation_rows,
    simulation_view,
)
from helixweb.planning.models import Plan, Simulation
from helixweb.planning.services import simulating
from helixweb.planning.stored import stored_plan
from helixweb.planning.study_forms import SimulationForm
from planner.domain.errors import PlannerError
from planner.domain.plan_forecast import PlanForecast


def forecast_context(
    request: HttpRequest, plan: Plan, forecast: PlanForecast | None
) -> dict[str, Any]:
    """What the card shows; `?simulation=` chooses which one in detail, else the newest."""
    rows = simulation_rows(plan)
    done = [row for row in rows if row.forecast is not None]
    asked = query_id(request, "simulation")
    chosen = next((row for row in done if row.simulation.pk == asked), done[-1] if done else None)
    return {
        "headline": headline_of(plan, rows),
        "forecast": forecast,
        "forecast_figure": objective_words(forecast),
        "simulations": rows,
        "is_simulating": any(not row.simulation.is_finished for row in rows),
        "simulated": simulation_view(plan, chosen) if chosen else None,
        "simulation_asked": bool(asked),
        "simulation_form": SimulationForm(),
    }


@require_http_methods(["GET", "POST"])
def simulations(request: HttpRequest, pk: int) -> HttpResponse:
    """GET: the card's results, which htmx swaps in. POST: simulate again."""
    plan = get_object_or_404(Plan.objects.defer("problem", "document"), pk=pk)
    if request.method == "GET":
        forecast = stored_plan(plan).forecast
        context = {"plan": plan, **forecast_context(request, plan, forecast)}
        return render(request, "planning/_simulated.html", context)
    form = SimulationForm(request.POST)
    if not form.is_valid():
        for name, errors in form.errors.items():
            messages.error(request, f"{form[name].label}: {errors[0]}")
    else:
        try:
            simulating.start_simulation(plan, **form.request(), user=request.user)
        except PlannerError as error:
            messages.error(request, str(error))
        else:
            return _to_plan(plan, part="#forecast")
    return _to_plan(plan)


@require_POST
def simulation_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """End a simulation."""
    row = get_object_or_404(Simulation.objects.select_related("plan"), pk=pk)
    if not jobs.cancel(row):
        messages.info(request, _("The simulation had ended already."))
    return _to_plan(row.plan, part="#forecast")


def _to_plan(plan: Plan, *, part: str = "") -> HttpResponse:
    """Back to the page with the plan, and there to the card with this id."""
    if plan.run_id is None:
        return redirect("plan-runs")
    return redirect(f"{reverse('plan-run', args=[plan.run_id])}{part}")
