"""Overview, monitor, predictions, playground."""

from typing import Any

from django.core.cache import cache
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access.needs import VIEWER, needs
from helixweb.common import events
from helixweb.common.queries import query_id
from helixweb.deployment.instances import instances_view
from helixweb.deployment.models import Deployment
from helixweb.deployment.services.desired import current_generation
from helixweb.inventory.models import Cluster
from helixweb.monitoring.chat_proxy import ChatRefused, answer_chat, deployments, endpoints_of
from helixweb.monitoring.history import SILENT_AFTER_S
from helixweb.monitoring.history_view import KIND_TITLES, RANGES, Range, heat, history
from helixweb.monitoring.load import finding_of
from helixweb.monitoring.moment import Moment, node_charts
from helixweb.monitoring.overview import focus, overview_of
from helixweb.monitoring.predictions import agreement_of, to_compare
from helixweb.planning.stored import stored_plan
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
    cluster = _chosen(request)
    moment = Moment(cluster, timezone.now()) if cluster else None
    view = overview_of(request, moment, user=request.user, is_refresh=is_refresh)
    topics = [f"metrics:{cluster.pk}"] if cluster else []
    topics += [f"cluster:{line['cluster'].pk}" for line in view["lines"]]
    context: dict[str, Any] = {
        "view": view,
        "section": "overview",
        "topics": ",".join(topics),
        "last_event_id": last_event_id,
    }
    if is_refresh:
        return render(request, "monitoring/_overview.html", context)
    if moment and moment.serving:
        context |= {
            "history": history(moment, OVERVIEW_RANGE, is_small=True),
            "flow": moment.serving.load_chart(moment.sample),
        }
    if moment:
        context |= {"range": OVERVIEW_RANGE, **_live(moment)}
    return render(request, "monitoring/overview.html", context)


def _live(moment: Moment) -> dict[str, Any]:
    """What monitor.js moves, and what it gets of the last report."""
    return {
        "finding": finding_of(moment),
        "generation": current_generation(moment.cluster.pk),
        "latest": moment.latest,
        "age_s": moment.age_s,
        "silent_after_s": SILENT_AFTER_S,
    }


@needs(VIEWER)
@never_cache
def monitor(request: HttpRequest) -> HttpResponse:
    """`?cluster=&range=`: a cluster's numbers, now and over time; `?page=` of its nodes."""
    last_event_id = events.latest_id()
    cluster = _chosen(request)
    context: dict[str, Any] = {"clusters": Cluster.objects.within(request)}
    if cluster is None:
        return render(request, "monitoring/monitor.html", context)
    moment = Moment(cluster, timezone.now())
    chosen, kind, serving = _range(request), _kind(request), moment.serving
    context |= {
        "cluster": cluster,
        "ranges": RANGES,
        "serving": serving,
        "history": history(moment, chosen),
        "kinds": KIND_TITLES,
        "kind": kind,
        "heat": heat(moment, kind, chosen),
        "sample": moment.sample,
        "now": moment.numbers,
        "last_event_id": last_event_id,
        **_live(moment),
    }
    if serving is not None:
        context |= {
            "charts": node_charts(serving),
            "flow": serving.flow_chart(moment.sample),
            "page": Paginator(serving.nodes, NODES_PER_PAGE).get_page(request.GET.get("page")),
        }
        if serving.deployment is not None:
            context["instances"] = instances_view(serving.deployment, now=moment.now)
    return render(request, "monitoring/monitor.html", context)


@needs(VIEWER)
@never_cache
def monitor_chart(request: HttpRequest, name: str) -> JsonResponse:
    """`?cluster=&range=&kind=`: what monitor.js draws again: "heat", "flow-measured", "flow-load".

    Worked out once for all who ask within `CHART_KEPT_S`.
    """
    pk, kind, range_ = query_id(request, "cluster"), _kind(request), _range(request)
    moment = Moment(get_object_or_404(Cluster.objects.within(request), pk=pk), timezone.now())
    key = f"monitor-chart:{pk}:{name}:{kind}:{range_.name}:{get_language()}"
    content = cache.get_or_set(key, lambda: _chart(moment, name, kind, range_), CHART_KEPT_S)
    return JsonResponse(content)


def _chart(moment: Moment, name: str, kind: str, range_: Range) -> dict[str, Any]:
    if name == "heat":
        chart = heat(moment, kind, range_)
    elif moment.serving is None:
        raise Http404(_("Cluster %(cluster)s serves nothing.") % {"cluster": moment.cluster})
    elif name == "flow-load":
        chart = moment.serving.load_chart(moment.sample)
    else:
        chart = moment.serving.flow_chart(moment.sample)
    return {"figure": chart.figure, "summary": chart.summary, "rows": chart.rows}


@needs(VIEWER, of=Deployment)
@never_cache
def predictions(request: HttpRequest, pk: int) -> HttpResponse:
    """What the plan's assumptions are worth now, and what to do."""
    last_event_id = events.latest_id()
    deployment = get_object_or_404(to_compare(request), pk=pk)
    agreement = agreement_of(deployment, now=timezone.now())
    ids = dict(deployment.cluster.nodes.values_list("name", "pk"))
    context = {
        "deployment": deployment,
        "agreement": agreement,
        "has_instances": bool(stored_plan(deployment.plan).instances),
        "broken": [(line, ids.get(line.node)) for line in agreement.broken],
        "last_event_id": last_event_id,
    }
    return render(request, "monitoring/predictions.html", context)


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
