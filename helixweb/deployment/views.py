"""Pages of deployments."""

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from helixweb.common import events
from helixweb.common.options import initial_of
from helixweb.common.queries import query_id
from helixweb.common.refusals import Conflict
from helixweb.deployment.forms import DeployForm
from helixweb.deployment.instance_view import instances_view
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.presentation import (
    change_of,
    coordinator_says,
    curl_command,
    drains_of,
    endpoint_urls,
    losses_of,
    node_rows,
    placed_names,
    requests_waiting,
    timeline_of,
)
from helixweb.deployment.services import (
    deploying,
    desired,
    outages,
    pausing,
    pinning,
    repairing,
    rolling_back,
)
from helixweb.deployment.settling import refusals_of
from helixweb.planning.models import Plan

DEPLOYMENTS_PER_PAGE = 30
NODES_PER_PAGE = 100


@require_GET
def deployments(request: HttpRequest) -> HttpResponse:
    """All deployments, newest first."""
    rows = Deployment.objects.select_related("cluster", "model", "plan", "created_by").defer(
        "serving_plan", "plan__document", "plan__problem"
    )
    page = Paginator(rows, DEPLOYMENTS_PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "deployment/deployments.html", {"page": page})


@require_http_methods(["GET", "POST"])
def deployment_new(request: HttpRequest) -> HttpResponse:
    """`?plan=`: choose options; POST deploys and shows the deployment.

    `?again=`: with the options that this deployment of the plan had; without it, with those of
    what runs, where the plan can be served beside that.
    """
    plan = get_object_or_404(
        Plan.objects.select_related("cluster", "model", "run").defer(
            "problem", "document", "run__problem"
        ),
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
                options=form.deploy_options(),
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


@require_GET
def deployment(request: HttpRequest, pk: int) -> HttpResponse:
    """Every node's way to the desired state, live; the endpoint; what to do about errors.

    `?page=` of the nodes.
    """
    last_event_id = events.latest_id()
    row = get_object_or_404(
        Deployment.objects.select_related("cluster", "model", "plan", "created_by").defer(
            "serving_plan", "plan__problem", "plan__document"
        ),
        pk=pk,
    )
    now = timezone.now()
    base_url, *more_urls = endpoint_urls(row, now=now) or [""]
    drains = drains_of(row) if row.status in SERVING else []
    repair = repairing.shown_repair(row, now=now) if row.status in SERVING else None
    away = [] if repair is None else repair.lost
    drained = [name for name in away if name in {drain.node.name for drain in drains}]
    page = Paginator(placed_names(row.plan), NODES_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "deployment": row,
        "may_mix_versions": pinning.may_mix_versions(row.stage_checkpoint),
        "can_stop": row.status in SERVING,
        "instances": instances_view(row, now=now) if row.is_live else None,
        "before": rolling_back.deployment_before(row) if row.status in SERVING else None,
        "change": change_of(row),
        "page": page,
        "nodes": node_rows(row, list(page.object_list), now=now),
        "losses": losses_of(row, now=now),
        "drains": drains,
        "waiting": requests_waiting(row) if row.status in SERVING else None,
        "refusals": refusals_of(row, now=now),
        "coordinator_says": coordinator_says(row),
        "repair": repair,
        "outage": outages.outage_of(row, now=now),
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


@require_POST
def deployment_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """Have every node let go of its layers."""
    row = get_object_or_404(Deployment, pk=pk)
    try:
        deploying.stop(row, user=request.user, now=timezone.now())
    except deploying.DeployRefused as error:
        messages.error(request, str(error))
    return redirect("deployment", pk)


@require_POST
def deployment_pause(request: HttpRequest, pk: int) -> HttpResponse:
    """Let new requests wait."""
    row = get_object_or_404(Deployment, pk=pk)
    try:
        pausing.pause(row, user=request.user, now=timezone.now())
    except Conflict as error:
        messages.error(request, str(error))
    return redirect("deployment", pk)


@require_POST
def deployment_resume(request: HttpRequest, pk: int) -> HttpResponse:
    """Let in what waits."""
    row = get_object_or_404(Deployment, pk=pk)
    try:
        pausing.resume(row, user=request.user)
    except Conflict as error:
        messages.error(request, str(error))
    return redirect("deployment", pk)


@require_POST
def deployment_roll_back(request: HttpRequest, pk: int) -> HttpResponse:
    """Deploy anew what the cluster ran before."""
    row = get_object_or_404(Deployment, pk=pk)
    try:
        deployed = rolling_back.roll_back(row, user=request.user, now=timezone.now())
    except deploying.DeployRefused as error:
        messages.error(request, str(error))
        return redirect("deployment", pk)
    return redirect("deployment", deployed.pk)
