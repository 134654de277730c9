"""Pages of deployments, and what users do there."""

from collections.abc import Callable

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common import events
from helixweb.common.options import initial_of, options_from
from helixweb.common.page_refusals import refusals_shown
from helixweb.common.queries import query_id
from helixweb.deployment.coordinators import (
    change_of,
    coordinator_says,
    curl_command,
    endpoint_urls,
    requests_waiting,
)
from helixweb.deployment.forms import DeployForm
from helixweb.deployment.instances import instances_view
from helixweb.deployment.link_weights import hold_weights
from helixweb.deployment.models import SERVING, Deployment, Drain, Repair
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.services import deploying, desired, losses, pinning, repairing
from helixweb.deployment.settling import refusals_of
from helixweb.deployment.stages import node_rows, placed_names, timeline_of
from helixweb.planning.models import Plan

DEPLOYMENTS_PER_PAGE = 30
NODES_PER_PAGE = 100


@needs(VIEWER)
def deployments(request: HttpRequest) -> HttpResponse:
    """All deployments, newest first."""
    rows = Deployment.light(request).select_related("created_by")
    page = Paginator(rows, DEPLOYMENTS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "deployment/deployments.html", {"page": page})


@needs(OPERATOR, OPERATOR)
def deployment_new(request: HttpRequest) -> HttpResponse:
    """`?plan=`: choose options; POST deploys and shows the deployment.

    `?again=`: with the options that this deployment of the plan had; without it, with those of
    what runs, where the plan can be served beside that.
    """
    plan = get_object_or_404(
        Plan.objects.within(request)
        .select_related("cluster", "model", "run")
        .defer("problem", "document", "run__problem"),
        pk=query_id(request, "plan"),
    )
    seen = {"seen_generation": desired.current_generation(plan.cluster_id)}
    again = plan.deployments.filter(pk=query_id(request, "again")).first()
    kept = {} if again is not None else deploying.options_kept(plan)
    initial = seen | (kept if again is None else initial_of(again.options))
    form = DeployForm(request.POST if request.method == "POST" else None, initial=initial)
    refusals: tuple[str, ...] = ()
    if request.method == "POST" and form.is_valid():
        try:
            deployment = deploying.deploy(
                plan,
                user=request.user,
                options=options_from(DeployOptions, form.cleaned_data),
                now=timezone.now(),
                seen_generation=form.cleaned_data["seen_generation"],
            )
        except deploying.DeployRefused as error:
            refusals = error.reasons
            typed = request.POST.copy()
            typed["seen_generation"] = str(seen["seen_generation"])  # pressed again, it means this
            form.data = typed
        else:
            return redirect("deployment", deployment.pk)
    context = {"plan": plan, "form": form, "refusals": refusals, "again": again, "kept": kept}
    status = 200 if request.method == "GET" else 422
    return render(request, "deployment/deployment_new.html", context, status=status)


@needs(VIEWER, of=Deployment)
def deployment(request: HttpRequest, pk: int) -> HttpResponse:
    """Every node's way to the desired state, live; the endpoint; what to do about errors.

    `?page=` of the nodes.
    """
    last_event_id = events.latest_id()
    row = get_object_or_404(Deployment.light(request).select_related("created_by"), pk=pk)
    now = timezone.now()
    base_url, *more_urls = endpoint_urls(row, now=now) or [""]
    drains = list(
        Drain.unscoped.filter(node__cluster=row.cluster_id)
        .select_related("node")
        .defer("node__hardware")
        if row.status in SERVING
        else ()
    )
    repair = losses.shown_repair(row, now=now) if row.status in SERVING else None
    away = [] if repair is None else repair.lost
    drained = [name for name in away if name in {drain.node.name for drain in drains}]
    page = Paginator(placed_names(row.plan), NODES_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "deployment": row,
        "may_mix_versions": pinning.may_mix_versions(row.stage_checkpoint),
        "can_stop": row.status in SERVING,
        "instances": instances_view(row, now=now) if row.is_live else None,
        "before": deploying.deployment_before(row) if row.status in SERVING else None,
        "change": change_of(row),
        "page": page,
        "nodes": node_rows(row, list(page.object_list), now=now),
        "losses": losses.losses_of(row, now=now),
        "drains": drains,
        "waiting": requests_waiting(row) if row.status in SERVING else None,
        "refusals": refusals_of(row, now=now),
        "coordinator_says": coordinator_says(row),
        "repair": repair,
        "outage": losses.outage_of(row, now=now),
        "lost": [name for name in away if name not in drained],
        "drained": drained,
        "base_url": base_url,
        "more_urls": more_urls,
        "curl": curl_command(row, base_url),
        "last_event_id": last_event_id,
    }
    if "HX-Request" in request.headers:
        return render(request, "deployment/_live.html", context)
    topics = [row.topic, f"cluster:{row.cluster_id}"]
    topics += [f"metrics:{row.cluster_id}"] if row.is_live else []
    context["topics"] = ",".join(topics)
    context["timeline"] = timeline_of(row, now=now)
    return render(request, "deployment/deployment.html", context)


def _button(
    of: type[Deployment | Repair], act: Callable[..., Deployment | None]
) -> Callable[..., HttpResponse]:
    """A view that does this to a row, then shows its deployment or the one that `act` returns."""

    @needs(change=OPERATOR, of=of)
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        row = get_object_or_404(of.objects.within(request), pk=pk)
        shown = row.deployment if isinstance(row, Repair) else row
        with refusals_shown(request):
            shown = act(row, user=request.user, now=timezone.now()) or shown
        return redirect("deployment", shown.pk)

    return view


deployment_stop = _button(Deployment, deploying.stop)
deployment_pause = _button(Deployment, deploying.pause)
deployment_resume = _button(Deployment, deploying.resume)
deployment_roll_back = _button(Deployment, deploying.roll_back)
repair_deploy = _button(Repair, repairing.accept)
repair_dismiss = _button(Repair, repairing.dismiss)


@needs(change=OPERATOR, of=Deployment)
def deployment_weights(request: HttpRequest, pk: int) -> HttpResponse:
    """`held=1`: route by the plan's weights even if links are slow; else follow links again."""
    row = get_object_or_404(Deployment.light(request), pk=pk, status__in=SERVING)
    held = request.POST.get("held") == "1"
    hold_weights(row, held=held, user=request.user, now=timezone.now())
    return redirect("network", row.cluster_id)
