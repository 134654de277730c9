"""Prometheus metrics of deployments: state, generation, and links in use."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from prometheus_client import Metric

from helixweb.common.metrics import Table, gauges
from helixweb.deployment.links import LiveLink, working_links
from helixweb.deployment.models import LIVE, OPEN, Deployment, Repair, Status
from runtime.protocol.exposition import counter, gauge, states

OF_LINKS: Table = [
    (
        "link_bandwidth_bytes_per_second",
        "What a link does, and what the plan counts on",
        [
            ({"kind": "measured"}, "stats.bandwidth_bytes_per_s"),
            ({"kind": "planned"}, "planned_bytes_per_s"),
        ],
    )
] + [
    (f"link_{name}", words, [({}, attribute)])
    for name, words, attribute in (
        ("rtt_seconds", "Round trip of the idle link", "stats.rtt_s"),
        ("queueing_seconds", "How much longer the last round trip took", "stats.queueing_s"),
        ("waiting_bytes", "Waits to be sent", "stats.waiting_bytes"),
        ("in_flight_bytes", "Sent and not answered", "stats.in_flight_bytes"),
        ("stalled", "1 while what was sent is not answered", "stats.stalled"),
        ("slow", "1 while a link clearly does less than the plan counts on", "slow"),
    )
]


def collect(now: datetime, scope: Any) -> Iterator[Metric]:
    """Metrics of each cluster's live deployment."""
    for deployment in Deployment.light(scope).filter(status__in=LIVE).order_by("cluster__name"):
        labels = {"cluster": deployment.cluster.name}
        yield states(
            "helix_deployment_status",
            "1 at the state of a cluster's deployment",
            labels,
            state=deployment.status,
            known=sorted(status.value for status in LIVE),
        )
        yield gauge(
            "helix_deployment_generation",
            "Grows with every change of what the nodes must run",
            [({**labels, "model_name": deployment.model_name}, deployment.generation)],
        )
        yield gauge(
            "helix_deployment_paused",
            "1 while new requests are kept waiting",
            [(labels, float(deployment.paused_at is not None))],
        )
        open_repairs = Repair.unscoped.filter(deployment=deployment, state__in=OPEN).count()
        yield gauge(
            "helix_deployment_open_repairs",
            "Losses or arrivals of nodes that are not dealt with yet",
            [(labels, open_repairs)],
        )
        if deployment.status != Status.STOPPING:
            yield from _of_links(labels["cluster"], working_links(deployment, now=now))


def _of_links(cluster: str, rows: list[LiveLink]) -> Iterator[Metric]:
    pairs = [
        ({"cluster": cluster, "source": row.source, "target": row.target}, row) for row in rows
    ]
    yield from gauges(OF_LINKS, pairs)
    yield counter(
        "helix_link_bytes_total",
        "Sent: decodes and control urgently, prompts in bulk",
        [
            ({**labels, "lane": lane}, sent)
            for labels, row in pairs
            for lane, sent in (
                ("urgent", row.stats.urgent_bytes_total),
                ("bulk", row.stats.bulk_bytes_total),
            )
        ],
    )
