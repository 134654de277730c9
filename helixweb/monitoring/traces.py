"""Keeps the traces of requests, finds them again, and forgets them in time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from helixweb.common.batches import delete_in_batches
from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import TracedRequest
from runtime.protocol.request_trace import PartKind, RequestTrace

KEEP = timedelta(hours=24)
# At about 10 kB each; the newest of a cluster.
MOST_OF_A_CLUSTER = 20_000
COMPLETE = ("stop", "length")
# The share of time on links is that of these requests.
LATELY = timedelta(minutes=1)
MOST_LATELY = 50


def record_traces(cluster_id: int, traces: Sequence[RequestTrace]) -> None:
    """Store traces, except those stored before: a report whose answer was lost is sent again."""
    TracedRequest.objects.bulk_create(
        [_row(cluster_id, trace) for trace in traces], ignore_conflicts=True
    )


def prune_traces(now: datetime) -> None:
    """Delete traces older than a day, and all but the newest of each cluster."""
    delete_in_batches(TracedRequest.unscoped.filter(arrived_at__lt=now - KEEP), key="pk")
    for cluster in Cluster.unscoped.all():
        kept = TracedRequest.unscoped.filter(cluster=cluster).order_by("-arrived_at", "-pk")
        for oldest in kept.values_list("arrived_at", flat=True)[MOST_OF_A_CLUSTER - 1 :][:1]:
            delete_in_batches(kept.filter(arrived_at__lt=oldest), key="pk")


def transfer_ratios(cluster: Cluster, *, now: datetime) -> dict[str, float]:
    """Share of the time of the newest requests of the last minute that each link took."""
    newest = TracedRequest.unscoped.filter(cluster=cluster, arrived_at__gte=now - LATELY)
    rows = newest.values_list("e2e_s", "transfers_s")[:MOST_LATELY]
    total_s = sum(e2e_s for e2e_s, _ in rows)
    seconds: dict[str, float] = {}
    for _, transfers_s in rows:
        for link, link_s in transfers_s.items():
            seconds[link] = seconds.get(link, 0.0) + link_s
    return {link: link_s / total_s for link, link_s in seconds.items()} if total_s > 0 else {}


def traced_requests(scope: Any) -> QuerySet[TracedRequest]:
    """Traced requests in scope, newest first; `detail` is deferred, as only one page needs it."""
    return TracedRequest.objects.within(scope).defer("detail").select_related("cluster")


def trace_of(row: TracedRequest) -> RequestTrace:
    """The whole trace."""
    return RequestTrace.model_validate(row.detail)


def visits(rows: QuerySet[TracedRequest], node: str) -> QuerySet[TracedRequest]:
    """Those of `rows` whose pipeline included `node`."""
    return rows.filter(path__contains=f"\n{node}\n")


def _transfers_s(trace: RequestTrace) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for part in trace.parts:
        if part.kind == PartKind.TRANSFER:
            link = f"{part.node} → {part.to}"
            seconds[link] = round(seconds.get(link, 0.0) + part.seconds, 6)
    return seconds


def _row(cluster_id: int, trace: RequestTrace) -> TracedRequest:
    tpot_s = None
    if trace.outcome in COMPLETE and trace.output_tokens > 1 and trace.ttft_s is not None:
        tpot_s = (trace.e2e_s - trace.ttft_s) / (trace.output_tokens - 1)
    return TracedRequest(
        cluster_id=cluster_id,
        request=trace.request,
        arrived_at=datetime.fromtimestamp(trace.arrived_at, tz=UTC),
        generation=trace.generation,
        model_name=trace.model_name[:200],
        outcome=trace.outcome,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        queue_s=trace.queue_s,
        ttft_s=trace.ttft_s,
        tpot_s=tpot_s,
        e2e_s=trace.e2e_s,
        attempts=trace.attempts,
        transfers_s=_transfers_s(trace),
        path="".join(f"\n{stage.node}" for stage in trace.pipeline) + "\n",
        detail=trace.model_dump(mode="json"),
    )
