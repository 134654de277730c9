"""Overview, monitor, playground."""

from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.core.paginator import Paginator
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
)
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access.needs import VIEWER, needs
from helixweb.common import events
from helixweb.common.queries import query_id
from helixweb.deployment.instances import instances_view
from helixweb.deployment.services.desired import current_generation
from helixweb.inventory.models import Cluster
from helixweb.monitoring.chat_proxy import ChatRefused, answer_chat
from helixweb.monitoring.endpoints import deployments, endpoints_of
from helixweb.monitoring.flow_view import flow_chart, load_chart
from helixweb.monitoring.history import (
    SILENT_AFTER_S,
    age_s,
    current_sample,
    if_current,
    latest_sample,
)
from helixweb.monitoring.history_view import (
    KIND_TITLES,
    RANGES,
    Range,
    heat,
    history,
    small_history,
)
from helixweb.monitoring.load import finding_of
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.overview import focus, overview_of
from helixweb.monitoring.presentation import Serving, node_charts, numbers, serving_of
from runtime.protocol.trace_context import CHAT, HEADER, context_of

NODES_PER_PAGE = 100
CHART_KEPT_S = 10
OVERVIEW_RANGE = next(one for one in RANGES if one.name == "15m")


@needs(VIEWER)
@never_cache
def overview(request: HttpRequest) -> HttpResponse:
    """How far the set-up is; once something serves, how it does."""
    last_event_id = events.latest_id()
    is_refresh = "HX-Request" in request.headers
    now = timezone.now()
    view = overview_of(request, _chosen(request), user=request.user, is_refresh=is_refresh, now=now)
    template = "monitoring/_overview.html" if is_refresh else "monitoring/overview.html"
    topics = [f"metrics:{view.cluster.pk}"] if view.cluster else []
    topics += [f"cluster:{line['cluster'].pk}" for line in view.lines]
    context = {
        "view": view,
        "section": "overview",
        "topics": ",".join(topics),
        "last_event_id": last_event_id,
    }
    if not is_refresh and view.cluster is not None:
        context |= _live_charts(view.cluster, view.serving, view.sample, now=now)
    return render(request, template, context)


def _live_charts(
    cluster: Cluster, serving: Serving | None, sample: MetricSample | None, *, now: datetime
) -> dict[str, Any]:
    """What monitor.js moves: the flow, and lines of the last minutes."""
    return {
        "history": small_history(cluster, OVERVIEW_RANGE, now=now) if serving else None,
        "flow": load_chart(cluster, serving, sample) if serving else None,
        "finding": finding_of(cluster, serving, sample, now=now),
        "range": OVERVIEW_RANGE,
        **_heard(cluster, latest_sample(cluster), now=now),
    }


def _heard(cluster: Cluster, latest: MetricSample | None, *, now: datetime) -> dict[str, Any]:
    """What monitor.js gets of the last report."""
    return {
        "generation": current_generation(cluster.pk),
        "latest": latest,
        "age_s": age_s(latest, now=now) if latest else None,
        "silent_after_s": SILENT_AFTER_S,
    }


@needs(VIEWER)
@never_cache
def monitor(request: HttpRequest) -> HttpResponse:
    """`?cluster=&range=`: a cluster's numbers, now and over time; `?page=` of its nodes."""
    last_event_id = events.latest_id()
    cluster = _chosen(request)
    clusters = Cluster.objects.within(request)
    if cluster is None:
        return render(request, "monitoring/monitor.html", {"clusters": clusters})
    now = timezone.now()
    latest = latest_sample(cluster)
    sample = if_current(latest, now=now)
    serving = serving_of(cluster, sample)
    chosen, kind = _range(request), _kind(request)
    context = {
        "clusters": clusters,
        "cluster": cluster,
        "ranges": RANGES,
        "serving": serving,
        "charts": node_charts(serving) if serving else None,
        "instances": instances_view(serving.deployment, now=now)
        if serving and serving.deployment
        else None,
        "page": Paginator(serving.nodes, NODES_PER_PAGE).get_page(request.GET.get("page"))
        if serving
        else None,
        "history": history(cluster, chosen, now=now),
        "finding": finding_of(cluster, serving, sample, now=now),
        "flow": flow_chart(cluster, serving, sample) if serving else None,
        "kinds": KIND_TITLES,
        "kind": kind,
        "heat": heat(cluster, kind, chosen, now=now),
        "sample": sample,
        "now": numbers(sample),
        "last_event_id": last_event_id,
        **_heard(cluster, latest, now=now),
    }
    return render(request, "monitoring/monitor.html", context)


@needs(VIEWER)
@never_cache
def monitor_chart(request: HttpRequest, name: str) -> JsonResponse:
    """`?cluster=&range=&kind=`: what monitor.js draws anew: "heat", "flow-measured", "flow-load".

    Worked out once for all who ask within `CHART_KEPT_S`.
    """
    pk, kind, range_ = query_id(request, "cluster"), _kind(request), _range(request)
    cluster = get_object_or_404(Cluster.objects.within(request), pk=pk)
    key = f"monitor-chart:{pk}:{name}:{kind}:{range_.name}:{get_language()}"
    content = cache.get_or_set(key, lambda: _chart(cluster, name, kind, range_), CHART_KEPT_S)
    return JsonResponse(content)


def _chart(cluster: Cluster, name: str, kind: str, range_: Range) -> dict[str, Any]:
    now = timezone.now()
    if name == "heat":
        chart = heat(cluster, kind, range_, now=now)
    else:
        sample = current_sample(cluster, now=now)
        serving = serving_of(cluster, sample)
        if serving is None:
            raise Http404(_("Cluster %(cluster)s serves nothing.") % {"cluster": cluster})
        draw = load_chart if name == "flow-load" else flow_chart
        chart = draw(cluster, serving, sample)
    return {"figure": chart.figure, "summary": chart.summary, "rows": chart.rows}


@needs(VIEWER)
@never_cache
def playground(request: HttpRequest) -> HttpResponse:
    """`?deployment=`: chat with what is deployed."""
    context = {
        "endpoints": endpoints_of(deployments(request)),
        "chosen": query_id(request, "deployment"),
    }
    return render(request, "monitoring/playground.html", context)


@needs(change=VIEWER)
async def playground_chat(request: HttpRequest) -> HttpResponseBase:
    """An OpenAI chat request with `deployment` in place of `model`; answers as a coordinator."""
    parent = context_of(request.headers.get(HEADER), is_told=False, operation=CHAT)
    try:
        return await answer_chat(
            request.body, scope=request, traceparent=parent.came if parent else None
        )
    except ChatRefused as refusal:
        return JsonResponse(refusal.error, status=refusal.status)


def _range(request: HttpRequest) -> Range:
    asked = request.GET.get("range")
    return next((range_ for range_ in RANGES if range_.name == asked), RANGES[0])


def _kind(request: HttpRequest) -> str:
    """Of latency."""
    asked = request.GET.get("kind", "")
    return asked if asked in KIND_TITLES else "itl"


def _chosen(request: HttpRequest) -> Cluster | None:
    """The cluster asked for, else the one in focus; 404 for one that is not there."""
    if not request.GET.get("cluster"):
        return focus(request)
    return get_object_or_404(Cluster.objects.within(request), pk=query_id(request, "cluster"))
