"""What Prometheus reads of clusters at work: what the monitor shows, by the same code."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from prometheus_client import Metric

from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import current_sample
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.presentation import MonitoredNode, Serving, serving_of
from runtime.protocol.exposition import gauge

_LATENCIES = ("ttft", "itl", "tpot", "e2e")
_QUANTILES = {"0.5": "p50", "0.95": "p95"}


def collect(now: datetime, scope: Any) -> Iterator[Metric]:
    """Of every cluster that is deployed or reports."""
    for cluster in Cluster.objects.within(scope).order_by("name"):
        sample = current_sample(cluster, now=now)
        serving = serving_of(cluster, sample)
        if sample is not None:
            yield from _of_sample(cluster.name, sample)
        if serving is not None:
            yield from _of_plan(cluster.name, serving)
            yield from _of_nodes(cluster.name, serving)


def _of_sample(cluster: str, sample: MetricSample) -> Iterator[Metric]:
    labels = {"cluster": cluster}
    yield gauge(
        "helix_cluster_simulated",
        "1 while the numbers of a cluster are made up by the simulator",
        [(labels, float(sample.simulated))],
    )
    yield gauge(
        "helix_cluster_requests",
        "Requests at a cluster's coordinators",
        [
            ({**labels, "state": "running"}, sample.running),
            ({**labels, "state": "waiting"}, sample.waiting),
        ],
    )
    yield gauge(
        "helix_cluster_tokens_per_second",
        "Over the last seconds",
        [
            ({**labels, "kind": "prompt"}, sample.prompt_tokens_per_s),
            ({**labels, "kind": "output"}, sample.output_tokens_per_s),
        ],
    )
    yield gauge(
        "helix_cluster_latency_seconds",
        "Percentiles over the last seconds; histograms are at the coordinators",
        [
            ({**labels, "kind": kind, "quantile": quantile}, getattr(sample, f"{kind}_{name}_s"))
            for kind in _LATENCIES
            for quantile, name in _QUANTILES.items()
        ],
    )


def _of_plan(cluster: str, serving: Serving) -> Iterator[Metric]:
    labels = {"cluster": cluster}
    for name, words, value in (
        ("flow", "Maximum flow of the plan", serving.max_flow_tokens_per_s),
        ("bound", "No placement has more flow", serving.row.upper_bound_tokens_per_s),
        (
            "forecast",
            "Output that was forecast while requests always wait",
            serving.forecast_tokens_per_s,
        ),
    ):
        yield gauge(f"helix_plan_{name}_tokens_per_second", words, [(labels, value)])


def _of_nodes(cluster: str, serving: Serving) -> Iterator[Metric]:
    told: list[tuple[dict[str, str], MonitoredNode]] = [
        ({"cluster": cluster, "node": node.name}, node) for node in serving.nodes
    ]
    for name, words, attribute in (
        ("busy_ratio", "Share of its time that a node computes", "busy_ratio"),
        ("tokens_per_second", "Prompt and output tokens through a node", "tokens_per_s"),
        ("planned_tokens_per_second", "Flow that the plan sends through", "planned_tokens_per_s"),
        ("capacity_tokens_per_second", "What a node can do as placed", "capacity_tokens_per_s"),
        ("flow_share_ratio", "Share of the cluster's tokens that passed it", "flow_share"),
        ("sequences", "Sequences in a node's stage", "sequences"),
        ("kv_used_ratio", "Share of a node's KV cache in use", "kv_used_ratio"),
        ("kv_promised_ratio", "Share that running requests may need", "kv_promised_ratio"),
    ):
        yield gauge(
            f"helix_node_{name}",
            words,
            [(labels, getattr(node, attribute)) for labels, node in told],
        )
    yield gauge(
        "helix_node_kv_pages",
        "Pages of a node's KV cache",
        [
            ({**labels, "kind": kind}, pages)
            for labels, node in told
            for kind, pages in (("used", node.kv_used_pages), ("total", node.kv_total_pages))
        ],
    )
