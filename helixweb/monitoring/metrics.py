"""Prometheus metrics of serving clusters, by the same code as the monitor."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from prometheus_client import Metric

from helixweb.common.metrics import Table, gauges
from helixweb.inventory.models import Cluster
from helixweb.monitoring.moment import Moment

OF_SAMPLE: Table = (
    (
        "cluster_simulated",
        "1 while the numbers of a cluster are made up by the simulator",
        [({}, "simulated")],
    ),
    (
        "cluster_requests",
        "Requests at a cluster's coordinators",
        [({"state": state}, state) for state in ("running", "waiting")],
    ),
    (
        "cluster_tokens_per_second",
        "Over the last seconds",
        [({"kind": kind}, f"{kind}_tokens_per_s") for kind in ("prompt", "output")],
    ),
    (
        "cluster_latency_seconds",
        "Percentiles over the last seconds; histograms are at the coordinators",
        [
            ({"kind": kind, "quantile": quantile}, f"{kind}_{name}_s")
            for kind in ("ttft", "itl", "tpot", "e2e")
            for quantile, name in (("0.5", "p50"), ("0.95", "p95"))
        ],
    ),
)
OF_PLAN: Table = [
    (f"plan_{name}_tokens_per_second", words, [({}, attribute)])
    for name, words, attribute in (
        ("flow", "Maximum flow of the plan", "max_flow_tokens_per_s"),
        ("bound", "No placement has more flow", "row.upper_bound_tokens_per_s"),
        (
            "forecast",
            "Output that was forecast while requests always wait",
            "forecast_tokens_per_s",
        ),
    )
]
OF_NODES: Table = [
    (f"node_{name}", words, [({}, attribute)])
    for name, words, attribute in (
        ("busy_ratio", "Share of its time that a node computes", "busy_ratio"),
        ("tokens_per_second", "Prompt and output tokens through a node", "tokens_per_s"),
        ("planned_tokens_per_second", "Flow that the plan sends through", "planned_tokens_per_s"),
        ("capacity_tokens_per_second", "What a node can do as placed", "capacity_tokens_per_s"),
        ("flow_share_ratio", "Share of the cluster's tokens that passed it", "flow_share"),
        ("sequences", "Sequences in a node's stage", "sequences"),
        ("kv_used_ratio", "Share of a node's KV cache in use", "kv_used_ratio"),
        ("kv_promised_ratio", "Share that running requests may need", "kv_promised_ratio"),
    )
] + [
    (
        "node_kv_pages",
        "Pages of a node's KV cache",
        [({"kind": kind}, f"kv_{kind}_pages") for kind in ("used", "total")],
    )
]


def collect(now: datetime, scope: Any) -> Iterator[Metric]:
    """Metrics of every cluster with a deployment or reports."""
    for cluster in Cluster.objects.within(scope).order_by("name"):
        moment, labels = Moment(cluster, now), {"cluster": cluster.name}
        if moment.sample is not None:
            yield from gauges(OF_SAMPLE, [(labels, moment.sample)])
        if moment.serving is not None:
            yield from gauges(OF_PLAN, [(labels, moment.serving)])
            nodes = moment.serving.nodes
            yield from gauges(OF_NODES, [({**labels, "node": node.name}, node) for node in nodes])
