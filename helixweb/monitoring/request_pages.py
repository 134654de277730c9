"""Pages of traced requests: the list with its filters, and where the time of one went."""

from datetime import datetime, timedelta
from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import VIEWER, needs
from helixweb.charts.timelines import gantt
from helixweb.common.pages import by_htmx, list_page
from helixweb.deployment.models import LatestReport
from helixweb.inventory.forms import CLUSTER_FILTER
from helixweb.inventory.models import NodeState
from helixweb.monitoring.models import TracedRequest
from helixweb.monitoring.services import COMPLETE, trace_of, traced_requests, visits
from planner import COORDINATOR
from runtime.protocol.control import LiveRequestState
from runtime.protocol.request_trace import PartPhase, RequestTrace

ORDERS = {
    "-arrived_at": gettext_lazy("newest first"),
    "-e2e_s": gettext_lazy("slowest first"),
    "-ttft_s": gettext_lazy("longest TTFT first"),
    "-queue_s": gettext_lazy("longest queued first"),
    "-output_tokens": gettext_lazy("most tokens first"),
}


class RequestFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Filters of requests; every field is optional."""

    cluster = CLUSTER_FILTER()
    node = django_filters.CharFilter(
        method="filter_node",
        label=gettext_lazy("Node"),
        help_text=gettext_lazy("whole name of a node on its path"),
    )
    outcome = django_filters.ChoiceFilter(
        method="filter_outcome",
        label=gettext_lazy("Ended"),
        empty_label=gettext_lazy("any way"),
        choices=(
            ("complete", gettext_lazy("complete")),
            ("cancelled", gettext_lazy("cancelled by the client")),
            ("failed", gettext_lazy("with an error")),
        ),
    )
    request = django_filters.CharFilter(
        field_name="request", lookup_expr="istartswith", label=gettext_lazy("ID starts with")
    )
    slower_than = django_filters.NumberFilter(
        field_name="e2e_s",
        lookup_expr="gte",
        min_value=0,
        label=gettext_lazy("At least (s)"),
        widget=forms.NumberInput(attrs={"step": "any", "min": "0"}),
    )
    order = django_filters.OrderingFilter(
        fields=[(name.lstrip("-"), name.lstrip("-")) for name in ORDERS],
        choices=list(ORDERS.items()),
        label=gettext_lazy("Order"),
        empty_label=None,
    )

    class Meta:
        model = TracedRequest
        fields: list[str] = []

    def filter_node(
        self, rows: QuerySet[TracedRequest], name: str, value: str
    ) -> QuerySet[TracedRequest]:
        return visits(rows, value.strip())

    def filter_outcome(
        self, rows: QuerySet[TracedRequest], name: str, value: str
    ) -> QuerySet[TracedRequest]:
        ways: dict[str, Any] = {
            "complete": rows.filter(outcome__in=COMPLETE),
            "cancelled": rows.filter(outcome="cancelled"),
            "failed": rows.exclude(outcome__in=[*COMPLETE, "cancelled"]),
        }
        chosen: QuerySet[TracedRequest] = ways[value]
        return chosen


@needs(VIEWER)
def requests(request: HttpRequest) -> HttpResponse:
    """The list of requests. Filters, order and page are in the URL; invalid filters are ignored.

    Waiting and running requests are shown above the list; htmx fetches them separately.
    """
    live = _live(request, now=timezone.now())
    if by_htmx(request):
        return render(request, "monitoring/_live_requests.html", {"live": live})
    return list_page(
        request, "monitoring/requests.html", traced_requests(request),
        filters=RequestFilter, live=live,
    )  # fmt: skip


def _live(scope: Any, *, now: datetime) -> dict[str, Any]:
    """Number of waiting and running requests in all clusters in scope, from online coordinators;
    `rows` are the oldest, at most as many as each report lists."""
    waiting = running = 0
    rows: list[dict[str, Any]] = []
    for latest in LatestReport.objects.within(scope).select_related("coordinator__cluster"):
        if latest.coordinator.state_at(now) is not NodeState.ONLINE:
            continue
        waiting += latest.report["requests_waiting"]
        running += latest.report["requests_running"]
        for one in latest.report.get("requests", ()):
            arrived_at = latest.at - timedelta(seconds=one["age_s"])
            rows.append({**one, "arrived_at": arrived_at, "cluster": latest.coordinator.cluster})
    rows.sort(key=lambda row: (row["state"] != LiveRequestState.WAITING, row["arrived_at"]))
    return {
        "waiting": waiting,
        "running": running,
        "rows": rows,
        "unlisted": max(0, waiting + running - len(rows)),
    }


@needs(VIEWER)
def traced_request(request: HttpRequest, number: str) -> HttpResponse:
    """One request by its 16 hex digits."""
    row = (
        TracedRequest.objects.within(request)
        .select_related("cluster")
        .filter(request=number)
        .first()
    )
    if row is None:
        raise Http404(
            _(
                "There is no trace of request %(number)s: it is older than a day, still "
                "runs, or was not among those that its coordinator traced."
            )
            % {"number": number}
        )
    trace = trace_of(row)
    total_s = sum(part.seconds for part in trace.parts)
    context = {
        "row": row,
        "trace": trace,
        "chart": gantt(trace),
        "explained": total_s / trace.e2e_s if trace.e2e_s > 0 else None,
        "first_token": to_first_token(trace),
    }
    return render(request, "monitoring/request.html", context)


def to_first_token(trace: RequestTrace) -> list[tuple[str, float, float]]:
    """Parts of TTFT, in seconds and as a share: those of the prompt, and the transfer of the first
    token to the coordinator."""
    if not trace.ttft_s or trace.attempts > 1:
        return []
    of_prompt = [
        part for part in trace.parts if part.phase == PartPhase.PROMPT and part.to != COORDINATOR
    ]
    totals: dict[str, float] = {}
    for part in of_prompt:
        words = {
            "queue": _("queued at the coordinator"),
            "wait": _("waiting at %(node)s") % {"node": part.node},
            "compute": _("computing on %(node)s") % {"node": part.node},
            "engine": _("in the instance on %(node)s") % {"node": part.node},
            "transfer": _("from %(node)s to %(to)s") % {"node": part.node, "to": part.to},
        }.get(part.kind.value, part.kind.value)
        totals[words] = totals.get(words, 0.0) + part.seconds
    totals[_("the first token to the coordinator")] = max(0.0, trace.ttft_s - sum(totals.values()))
    return [(words, seconds, seconds / trace.ttft_s) for words, seconds in totals.items()]
