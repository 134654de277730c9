"""Pages of plan runs and of the plans they end in."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from helixweb.common import events
from helixweb.common.queries import query_id
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services import models_of
from helixweb.planning import services
from helixweb.planning.forms import PlanRunForm
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.presentation import age_s, plan_view, run_curve
from planner.domain.errors import PlannerError

RUNS_PER_PAGE = 30


@require_GET
def plan_runs(request: HttpRequest) -> HttpResponse:
    """All runs, newest first."""
    runs = PlanRun.objects.select_related("cluster", "model", "created_by").defer("problem")
    page = Paginator(runs, RUNS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "planning/plan_runs.html", {"page": page})


@require_http_methods(["GET", "POST"])
def plan_run_new(request: HttpRequest) -> HttpResponse:
    """Choose what to plan; POST starts the run and shows it."""
    if request.method == "POST":
        form = PlanRunForm(request.POST)
        if form.is_valid():
            try:
                run = services.start_plan_run(
                    cluster=form.cleaned_data["cluster"],
                    model=form.cleaned_data["model"],
                    options=form.plan_options(),
                    user=request.user,
                )
            except PlannerError as error:
                form.add_error(None, str(error))
            else:
                return redirect("plan-run", run.pk)
    else:
        form = PlanRunForm(initial=_choices(request))
    context = {
        "form": form,
        "has_clusters": Cluster.objects.exists(),
        "has_models": LanguageModel.objects.exists(),
    }
    status = 200 if request.method == "GET" else 422
    return render(request, "planning/plan_run_new.html", context, status=status)


def _choices(request: HttpRequest) -> dict[str, Any]:
    """The cluster asked for, or the first; the model asked for, or one it has profiles for."""
    cluster = Cluster.objects.filter(pk=query_id(request, "cluster")).first()
    cluster = cluster or Cluster.objects.first()
    if cluster is None:
        return {}
    model = LanguageModel.objects.filter(pk=query_id(request, "model")).first()
    return {"cluster": cluster, "model": model or next(iter(models_of(cluster)), None)}


@require_GET
def plan_run_preview(request: HttpRequest) -> HttpResponse:
    """What fits, as a fragment beside the form."""
    cluster = get_object_or_404(Cluster, pk=query_id(request, "cluster"))
    model = get_object_or_404(LanguageModel, pk=query_id(request, "model"))
    try:
        context = {"fit": services.preview_fit(cluster=cluster, model=model), "model": model}
    except PlannerError as error:
        context = {"error": str(error)}
    return render(request, "planning/_fit.html", context)


@require_GET
def plan_run(request: HttpRequest, pk: int) -> HttpResponse:
    """A search while it runs, and the plan once it has ended; htmx swaps only what is inside."""
    last_event_id = events.latest_id()
    run = get_object_or_404(
        PlanRun.objects.select_related("cluster", "model", "created_by").defer("problem"), pk=pk
    )
    plan = Plan.objects.filter(run=run).first()
    now = timezone.now()
    context = {
        "run": run,
        "curve": run_curve(run, now=now),
        "elapsed_s": age_s(run, now=now),
        "plan": plan,
        "view": plan_view(plan) if plan else None,
        "last_event_id": last_event_id,
    }
    is_swap = request.headers.get("HX-Request") == "true"
    return render(request, f"planning/{'_run' if is_swap else 'plan_run'}.html", context)


@require_POST
def plan_run_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask the search to end with its best so far."""
    run = get_object_or_404(PlanRun.objects.defer("problem"), pk=pk)
    if not services.cancel_plan_run(run):
        messages.info(request, "The search had ended already.")
    return redirect("plan-run", pk)
