"""Overview, monitor, predictions, playground."""

from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from helixweb.access.needs import VIEWER, needs
from helixweb.common.models import Event
from helixweb.common.pages import by_htmx, follows_events, page_of
from helixweb.common.queries import query_id
from helixweb.common.sentences import in_words
from helixweb.deployment.models import LIVE, Deployment
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.losses import outage_of
from helixweb.deployment.stages import instances_view
from helixweb.inventory.models import Cluster, NodeState
from helixweb.inventory.node_list import state_counts_by_cluster
from helixweb.monitoring.agreement import agreement_of
from helixweb.monitoring.chat_proxy import ChatRefused, answer_chat, endpoints_of
from helixweb.monitoring.checklist import checklist, has_served
from helixweb.monitoring.history import SILENT_AFTER_S, with_newest
from helixweb.monitoring.history_view import KIND_TITLES, RANGES, Range, heat, history
from helixweb.monitoring.moment import Moment, finding_of, node_charts
from helixweb.planning.models import Plan
from helixweb.planning.newer_measurements import NewerMeasurements, newer_measurements
from helixweb.planning.stored import stored_plan
from runtime.protocol.trace_context import CHAT, HEADER, context_of

NODES_PER_PAGE = 100
CHART_KEPT_S = 10
OVERVIEW_RANGE = next(one for one in RANGES if one.name == "15m")


@needs(VIEWER)
@follows_events
def overview(request: HttpRequest) -> HttpResponse:
    """The overview: progress of the set-up; once something serves, its state."""
    is_refresh = by_htmx(request)
    cluster = _chosen(request)
    moment = Moment(cluster, timezone.now()) if cluster else None
    view = overview_of(request, moment, user=request.user, is_refresh=is_refresh)
    topics = [f"metrics:{cluster.pk}"] if cluster else []
    topics += [f"cluster:{line['cluster'].pk}" for line in view["lines"]]
    context: dict[str, Any] = {
        "view": view,
        "topics": ",".join(topics),
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
    """Context for monitor.js: charts to update, and values of the last report."""
    return {
        "finding": finding_of(moment),
        "generation": current_generation(moment.cluster.pk),
        "latest": moment.latest,
        "age_s": moment.age_s,
        "silent_after_s": SILENT_AFTER_S,
    }


@needs(VIEWER)
@follows_events
def monitor(request: HttpRequest) -> HttpResponse:
    """`?cluster=&range=`: a cluster's numbers, now and over time; `?page=` of its nodes."""
    cluster = _chosen(request)
    context: dict[str, Any] = {"clusters": Cluster.objects.within(request)}
    if cluster is None:
        return render(request, "monitoring/monitor.html", context)
    moment = Moment(cluster, timezone.now())
    if by_htmx(request):
        served = {"cluster": cluster, "serving": moment.serving}
        return render(request, "monitoring/_served.html", served)
    chosen, kind, serving = _range(request), _kind(request), moment.serving
    live = moment.deployment
    context |= {
        "cluster": cluster,
        "topics": ",".join(
            [f"metrics:{cluster.pk}", f"cluster:{cluster.pk}", *([live.topic] if live else [])]
        ),
        "ranges": RANGES,
        "serving": serving,
        "history": history(moment, chosen),
        "kinds": KIND_TITLES,
        "kind": kind,
        "heat": heat(moment, kind, chosen),
        "sample": moment.sample,
        "now": moment.numbers,
        **_live(moment),
    }
    if serving is not None:
        context |= {
            "charts": node_charts(serving),
            "flow": serving.flow_chart(moment.sample),
            "page": page_of(request, serving.nodes, size=NODES_PER_PAGE),
        }
        if serving.deployment is not None:
            context["instances"] = instances_view(serving.deployment, now=moment.now)
    return render(request, "monitoring/monitor.html", context)


@needs(VIEWER)
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
@follows_events
def predictions(request: HttpRequest, pk: int) -> HttpResponse:
    """Page of predicted and measured figures, broken assumptions, and remedies."""
    deployment = get_object_or_404(Deployment.light(request), pk=pk)
    agreement = agreement_of(deployment, now=timezone.now())
    ids = dict(deployment.cluster.nodes.values_list("name", "pk"))
    context = {
        "deployment": deployment,
        "agreement": agreement,
        "has_instances": bool(stored_plan(deployment.plan).instances),
        "broken": [(line, ids.get(line.node)) for line in agreement.broken],
    }
    return render(request, "monitoring/predictions.html", context)


@needs(VIEWER)
def playground(request: HttpRequest) -> HttpResponse:
    """`?deployment=`: chat with what is deployed."""
    context = {
        "endpoints": endpoints_of(Deployment.light(request)),
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
    """The kind of latency of the request."""
    asked = request.GET.get("kind", "")
    return asked if asked in KIND_TITLES else "itl"


def _chosen(request: HttpRequest) -> Cluster | None:
    """The cluster asked for, else the one in focus; 404 for one that is not there."""
    if not request.GET.get("cluster"):
        return focus(request)
    return get_object_or_404(Cluster.objects.within(request), pk=query_id(request, "cluster"))


LAST_EVENTS = 12


def focus(scope: Any) -> Cluster | None:
    """The cluster that pages show by default: a serving one, else the newest."""
    live = Deployment.light(scope).filter(status__in=LIVE).first()
    return live.cluster if live else Cluster.objects.within(scope).order_by("-pk").first()


def overview_of(
    scope: Any, moment: Moment | None, *, user: Any, is_refresh: bool
) -> dict[str, Any]:
    """Context of the overview for `user`; a refresh omits the steps once all are done.

    `serving` is what `cluster` serves, or `outage` says why nothing does; `sample` its current
    numbers. `newer`: measurements since the plan that is served, else since the newest one. None:
    there is none. `is_set_up`: the deployment has generated a token. `is_moving`: a step is in
    progress, which no topic of the page reports. `lines` are rows of the table of clusters, `line`
    that of `cluster`; `news` are recent events as sentences.
    """
    now = moment.now if moment else timezone.now()
    cluster, serving = (moment.cluster, moment.serving) if moment else (None, None)
    lines = _lines(scope, now)
    live = serving.deployment if serving else None
    is_set_up = cluster is not None and has_served(cluster)
    steps = () if is_set_up and is_refresh else checklist(cluster, user=user, now=now)
    return {
        "cluster": cluster,
        "line": next((line for line in lines if line["cluster"] == cluster), None),
        "is_set_up": is_set_up,
        "steps": steps,
        "is_moving": any(step.progress is not None for step in steps),
        "serving": serving,
        "outage": outage_of(live, now=now) if live else None,
        "newer": _newer(cluster, live),
        "sample": moment and moment.sample,
        "numbers": moment and moment.numbers,
        "lines": lines,
        "news": _news(scope),
    }


def _newer(cluster: Cluster | None, live: Deployment | None) -> NewerMeasurements | None:
    plans = Plan.unscoped.filter(cluster=cluster)
    plan = live.plan if live else plans.exclude(run__what_if__gt="").first()
    return newer_measurements(plan) if plan else None


def _lines(scope: Any, now: datetime) -> list[dict[str, Any]]:
    live = {
        deployment.cluster_id: deployment
        for deployment in Deployment.light(scope).filter(status__in=LIVE)
    }
    counts = state_counts_by_cluster(now=now)
    return [
        {
            "cluster": cluster,
            "nodes": sum(counts.get(cluster.pk, {}).values()),
            "online": counts.get(cluster.pk, {}).get(NodeState.ONLINE.value, 0),
            "deployment": live.get(cluster.pk),
            "output_tokens_per_s": cluster.newest_output,
            "simulated": cluster.newest_plan is not None,
        }
        for cluster in with_newest(Cluster.objects.within(scope), now=now)
    ]


def _news(scope: Any) -> list[dict[str, Any]]:
    names = {f"cluster:{cluster.pk}": cluster.name for cluster in Cluster.objects.within(scope)}
    rows = Event.objects.filter(topic__in=list(names), data__text__isnull=False).order_by("-pk")
    return [
        {"at": row.created_at, "cluster": names[row.topic], "text": in_words(row.data)}
        for row in rows[:LAST_EVENTS]
    ]
