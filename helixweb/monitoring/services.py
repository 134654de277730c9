"""Keeps what coordinators report, with the traces of requests, announces it to open pages, and
forgets it in time.

A report is recorded in the transaction that stores it, so nothing is worked out here that may not
be looked at: pages ask for the rest.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet

from helixweb.common import events
from helixweb.common.batches import delete_in_batches, in_batches
from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import NODE_NUMBERS, REPORTED, MetricSample, TracedRequest
from helixweb.monitoring.node_samples import entered_tokens_total, node_samples
from runtime.protocol.control import CoordinatorReport, StageStats
from runtime.protocol.request_trace import PartKind, RequestTrace

# Shares of flow are taken over this long.
SHARE_WINDOW_S = 60
# Every second for an hour, then one sample in ten: a report covers about ten seconds anyway.
KEEP_ALL = timedelta(hours=1)
THINNED_STEP_S = 10
KEEP = timedelta(hours=24)
# Values of single nodes are stored every few seconds: in a large cluster they are most of a sample.
DETAIL_EVERY_S = 5
ALL_DETAIL_S = 15
KEEP_DETAIL = timedelta(minutes=20)
# Events include the values of nodes; with so many nodes only now and then.
MANY_NODES = 64
# Significant digits of values sent to pages, where a thousand nodes may be shown.
DIGITS = 4
NO_DETAIL: Mapping[str, Any] = {"nodes": {}, "edge_tokens_total": {}}


# At about 10 kB each; the newest of a cluster.
MOST_OF_A_CLUSTER = 20_000
COMPLETE = ("stop", "length")
# The share of time on links is that of these requests.
LATELY = timedelta(minutes=1)
MOST_LATELY = 50


def record_sample(
    *,
    cluster_id: int,
    report: CoordinatorReport,
    node_stats: Mapping[str, StageStats],
    at: datetime,
) -> MetricSample | None:
    """Store the report as a sample; None if the second has one already, also of a report that
    another coordinator sent at the same moment.

    What single nodes did stays with the first sample of every few seconds, and with the newest,
    over which rates are taken.
    """
    second = int(at.timestamp())
    with transaction.atomic():
        samples = MetricSample.unscoped.filter(cluster=cluster_id)
        latest = samples.order_by("-second").first()
        if latest is not None and latest.second >= second:
            return None
        is_same = latest is not None and (
            latest.generation == report.generation and not latest.simulated
        )
        nodes = node_samples(
            report,
            node_stats,
            second=second,
            previous=latest if is_same else None,
            reference=detailed_sample(
                cluster_id, report.generation, since=second - SHARE_WINDOW_S, until=second
            ),
            silent_after_s=settings.HELIX_NODE_LOST_AFTER_S,
        )
        # Another coordinator may store this second's sample between the look above and this insert.
        sample, is_new = MetricSample.unscoped.get_or_create(
            cluster_id=cluster_id,
            second=second,
            defaults={
                "at": at,
                **{name: getattr(report, name) for name in REPORTED},
                "latency_totals": report.latency_counts,
                "edge_tokens_total": report.edge_tokens_total,
                "running": report.requests_running,
                "waiting": report.requests_waiting,
                "entered_tokens_total": entered_tokens_total(report),
                "nodes": {name: node.to_json() for name, node in nodes.items()},
            },
        )
        if not is_new:
            return None
        _thin_detail(samples, before=second - ALL_DETAIL_S)
    return sample


def keep_report(
    *,
    cluster_id: int,
    report: CoordinatorReport,
    node_stats: Mapping[str, StageStats],
    at: datetime,
    **_: Any,  # the signal's own sender and name
) -> None:
    """A coordinator reported; runs in the transaction that stores the report."""
    sample = record_sample(cluster_id=cluster_id, report=report, node_stats=node_stats, at=at)
    record_traces(cluster_id, report.traces)
    if sample is not None:
        announce(sample)


def announce(sample: MetricSample) -> None:
    """Send a sample that was just stored to open pages, within its transaction.

    `nodes` is {"fields": names of columns, "rows": node -> its numbers in that order}, or null if
    they are left out.
    """
    nodes = None
    if len(sample.nodes) <= MANY_NODES or sample.second % DETAIL_EVERY_S == 0:
        rows = {
            name: [
                round(number, DIGITS) if isinstance(number, float) else number
                for number in numbers.values()
            ]
            for name, numbers in sample.node_numbers.items()
        }
        nodes = {"fields": NODE_NUMBERS, "rows": rows}
    document = {
        "cluster": sample.cluster_id,
        "at": sample.at.isoformat(),
        "simulated": sample.simulated,
        **sample.numbers,
        "nodes": nodes,
    }
    events.emit(f"metrics:{sample.cluster_id}", "metrics", document)


def _thin_detail(samples: QuerySet[MetricSample], *, before: int) -> None:
    """Of samples shortly before, only the first of every few seconds keeps its node details."""
    begins = (before // DETAIL_EVERY_S - 1) * DETAIL_EVERY_S
    rows = samples.filter(second__gte=begins, second__lt=before).order_by("second")
    seen: set[int] = set()
    for pk, second in rows.values_list("pk", "second"):
        if second // DETAIL_EVERY_S in seen:
            samples.filter(pk=pk).update(**NO_DETAIL)
        seen.add(second // DETAIL_EVERY_S)


def detailed_sample(
    cluster_id: int,
    generation: int,
    *,
    since: int,
    until: int,
    column: str = "nodes",
    newest: bool = False,
) -> MetricSample | None:
    """The first one, or the newest, in [since, until) that has the `column` of what single nodes
    did, and no other; of a coordinator, in this generation."""
    samples = MetricSample.unscoped.filter(
        cluster=cluster_id,
        second__gte=since,
        second__lt=until,
        generation=generation,
        simulated_plan=None,
    ).only("second", "entered_tokens_total", column)
    ordered = samples.order_by("-second" if newest else "second").iterator(chunk_size=1)
    return next((sample for sample in ordered if getattr(sample, column)), None)


def prune_samples(now: datetime, *, rest: Callable[[float], None] = time.sleep) -> None:
    """Thin what is older than an hour, drop what is older than a day.

    What single nodes did is dropped after `KEEP_DETAIL`. Reports are stored meanwhile.
    """
    for cluster_id in list(Cluster.unscoped.values_list("pk", flat=True)):
        samples = MetricSample.unscoped.filter(cluster=cluster_id)
        forgotten = samples.filter(second__lt=int((now - KEEP).timestamp()))
        old = samples.filter(second__lt=int((now - KEEP_ALL).timestamp()))
        thinned = old.annotate(offset=F("second") % THINNED_STEP_S).filter(offset__gt=0)
        for rows in (forgotten, thinned):
            delete_in_batches(rows, key="second", rest=rest)
        full = samples.filter(second__lt=int((now - KEEP_DETAIL).timestamp())).exclude(nodes={})
        in_batches(full, key="second", change=lambda batch: batch.update(**NO_DETAIL), rest=rest)


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
