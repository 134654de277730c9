"""Pages of plan runs and of the plans they end in."""

from dataclasses import replace
from typing import Any

import django_filters
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common import jobs
from helixweb.common.own_turns import in_own_turn
from helixweb.common.pages import (
    by_htmx,
    follows_events,
    form_page,
    list_page,
    page_of,
    refusals_shown,
)
from helixweb.common.queries import parsed_id, query_id
from helixweb.inventory.engines import left_out
from helixweb.inventory.forms import CLUSTER_FILTER, MODEL_FILTER
from helixweb.inventory.models import Cluster, LanguageModel, Node
from helixweb.inventory.services.problems import models_of
from helixweb.inventory.stale_profiles import StaleProfile, stale_profiles
from helixweb.planning.forms import ExtensionForm, PlanRunForm, initial_from, node_names
from helixweb.planning.models import Incumbent, Plan, PlanRun
from helixweb.planning.newer_measurements import newer_measurements
from helixweb.planning.options import DEFAULTS, options_from_json
from helixweb.planning.presentation import (
    PlanContext,
    answers_of,
    better_incumbents,
    incumbent_context,
    plan_context,
    points_of,
    run_curve,
)
from helixweb.planning.services import fit as planning_fit
from helixweb.planning.services import solving, starting
from helixweb.planning.views.studies import ending, studies_context
from planner import PlannerError

NODES_PER_PAGE = 100


class RunFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Filters of the list of plan runs; invalid ones are ignored."""

    cluster = CLUSTER_FILTER()
    model = MODEL_FILTER()
    status = django_filters.ChoiceFilter(
        label=gettext_lazy("State"),
        empty_label=gettext_lazy("any"),
        choices=[(name, gettext_lazy(name)) for name in PlanRun.Status.values],
    )


@needs(VIEWER)
def plan_runs(request: HttpRequest) -> HttpResponse:
    """The newest first; `?cluster=`, `?model=`, `?status=` narrow them."""
    runs = PlanRun.objects.within(request).select_related("cluster", "model", "created_by", "plan")
    return list_page(request, "planning/plan_runs.html", runs, filters=RunFilter)


@needs(OPERATOR, OPERATOR)
def plan_run_new(request: HttpRequest) -> HttpResponse:
    """Choose what to plan; POST starts the run and shows it. `?start=` begins with that plan."""
    if request.method == "POST":
        cluster = _cluster(request, _typed_id(request, "cluster"))
        start = _typed_id(request, "start_plan")
        form = PlanRunForm(request.POST, scope=request, cluster=cluster, start=start)
    else:
        chosen = _choices(request)
        cluster, start = chosen.get("cluster"), chosen.get("start_plan", 0)
        form = PlanRunForm(initial=chosen, scope=request, cluster=cluster, start=start)
    if form.is_valid():
        with refusals_shown(request, form):
            named = ("cluster", "model", "survive_one_loss", "start_plan")
            run = starting.start_plan_run(
                **{name: form.cleaned_data[name] for name in named},
                options=form.plan_options(),
                user=request.user,
            )
            return redirect("plan-run", run.pk)
    return form_page(
        request,
        "planning/plan_run_new.html",
        form,
        has_clusters=Cluster.objects.within(request).exists(),
        has_models=LanguageModel.objects.exists(),
    )


def _choices(request: HttpRequest) -> dict[str, Any]:
    """The plan to begin with and how it was searched for; else the cluster and model asked for.

    Where nothing is asked for: the first cluster, and a model that it has profiles for.
    """
    plans = Plan.objects.within(request).select_related("cluster", "model", "run")
    start = plans.filter(pk=query_id(request, "start")).first()
    if start is not None:
        search = options_from_json(start.run.options) if start.run else DEFAULTS
        rules = search.rules.about(node_names(start.cluster))
        chosen = {"cluster": start.cluster, "model": start.model, "start_plan": start.pk}
        return {**initial_from(replace(search, rules=rules)), **chosen}
    cluster = _cluster(request) or Cluster.objects.within(request).first()
    if cluster is None:
        return {}
    model = LanguageModel.objects.filter(pk=query_id(request, "model")).first()
    return {"cluster": cluster, "model": model or next(iter(models_of(cluster)), None)}


def _cluster(request: HttpRequest, pk: int | None = None) -> Cluster | None:
    """The cluster in scope with that id, or that of `?cluster=`."""
    asked = query_id(request, "cluster") if pk is None else pk
    return Cluster.objects.within(request).filter(pk=asked).first()


def _typed_id(request: HttpRequest, name: str) -> int:
    return parsed_id(request.POST.get(name, "")) or 0


@needs(VIEWER)
def plan_run_starts(request: HttpRequest) -> HttpResponse:
    """The earlier plans of the cluster just chosen, as the options of the form's field."""
    form = PlanRunForm(scope=request, cluster=_cluster(request))
    return render(request, "planning/_starts.html", {"field": form["start_plan"]})


@needs(VIEWER)
def plan_run_node_rules(request: HttpRequest) -> HttpResponse:
    """The fields of rules about single nodes, for the nodes of the cluster just chosen."""
    form = PlanRunForm(scope=request, cluster=_cluster(request))
    return render(request, "planning/_node_rules.html", {"form": form})


@needs(VIEWER)
@in_own_turn
def plan_run_preview(request: HttpRequest) -> HttpResponse:
    """The preview of what fits, as a fragment beside the form."""
    cluster = get_object_or_404(Cluster.objects.within(request), pk=query_id(request, "cluster"))
    model = get_object_or_404(LanguageModel, pk=query_id(request, "model"))
    try:
        fit = planning_fit.preview_fit(cluster=cluster, model=model)
        context = {"fit": fit, "model": model, "left_out": left_out(cluster, model)}
    except PlannerError as error:
        context = {"error": str(error)}
    return render(request, "planning/_fit.html", context)


@needs(VIEWER, of=PlanRun)
@follows_events
def plan_run(request: HttpRequest, pk: int) -> HttpResponse:
    """A search while it runs, and the plan once it has ended; htmx swaps only what is inside.

    `?page=` of the placement.
    """
    runs = PlanRun.objects.within(request).select_related(
        "cluster", "model", "created_by", "continues", "start_plan", "replan__running_plan"
    )
    run = get_object_or_404(runs, pk=pk)
    plan = Plan.unscoped.filter(run=run).first()
    now = timezone.now()
    view = plan_context(plan) if plan else None
    context = {
        "run": run,
        "curve": run_curve(run, now=now),
        "incumbents": better_incumbents(run),
        "elapsed_s": run.age_s(now=now),
        "plan": plan,
        "view": view,
        "stale_profiles": _stale_profiles(run, view),
        "newer": newer_measurements(plan) if plan else None,
        "left_out": {} if view is None else _left_out(run, view),
        "page": page_of(request, view.nodes, size=NODES_PER_PAGE) if view else None,
        "extension": ExtensionForm(),
        "answers": answers_of(run, plan) if hasattr(run, "replan") else None,
        "points": points_of(run) if hasattr(run, "replan") else (),
        **(studies_context(request, plan) if plan else {}),
    }
    return render(request, f"planning/{'_run' if by_htmx(request) else 'plan_run'}.html", context)


def _left_out(run: PlanRun, view: PlanContext) -> dict[str, str]:
    """Nodes without layers whose engines cannot run stages, and why."""
    if view.plan.instances:
        return {}
    held = view.plan.placement.layers
    return {name: why for name, why in left_out(run.cluster, run.model).items() if name not in held}


def _stale_profiles(run: PlanRun, view: PlanContext | None) -> list[StaleProfile]:
    """Stale profiles of nodes that hold layers in the plan, as of now."""
    if view is None:
        return []
    names = list(view.plan.placement.layers)
    nodes = Node.unscoped.filter(cluster=run.cluster_id, name__in=names)
    nodes = nodes.only("name", "cluster_id", "profile_name", "hardware")
    found = stale_profiles(nodes, model=run.model)
    return [one for several in found.values() for one in several]


plan_run_cancel = ending(PlanRun, jobs.cancel, gettext_noop("The search had ended already."))
plan_run_accept = ending(
    PlanRun,
    solving.accept_best_so_far,
    gettext_noop("The search had ended already, or has found nothing yet."),
)


@needs(change=OPERATOR, row=PlanRun)
def plan_run_extend(request: HttpRequest, run: PlanRun) -> HttpResponse:
    """Search on from where the run ended; shows the run that does."""
    form = ExtensionForm(request.POST)
    for text in form.errors.get("seconds", []):
        messages.error(request, _("Seconds to search on: %(text)s") % {"text": text})
    if form.is_valid():
        with refusals_shown(request):
            longer = starting.extend_plan_run(run, **form.cleaned_data, user=request.user)
            return redirect("plan-run", longer.pk)
    return redirect("plan-run", run.pk)


@needs(change=OPERATOR, row=PlanRun)
def plan_run_again(request: HttpRequest, run: PlanRun) -> HttpResponse:
    """Search with the same options on the cluster as it is now; shows the run that does."""
    with refusals_shown(request):
        return redirect("plan-run", starting.compute_again(run, user=request.user).pk)
    return redirect("plan-run", run.pk)


@needs(VIEWER, of=PlanRun)
def incumbent(request: HttpRequest, pk: int, incumbent_pk: int) -> HttpResponse:
    """The placement a search had at a moment: its layers, its flow, and what differs from before.

    `?page=` of its nodes.
    """
    rows = Incumbent.objects.within(request).select_related("run__cluster", "run__model")
    row = get_object_or_404(rows, pk=incumbent_pk, run=pk)
    context = incumbent_context(row)
    context["page"] = page_of(request, context["nodes"], size=NODES_PER_PAGE)
    return render(request, "planning/incumbent.html", context)
