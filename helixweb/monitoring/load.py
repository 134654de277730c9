"""What limits a cluster now: gathers its newest numbers for `bottleneck.py`."""

from datetime import datetime

from helixweb.inventory.models import Cluster
from helixweb.monitoring.bottleneck import Finding, Load, NodeLoad, bottleneck
from helixweb.monitoring.history import current_sample
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.presentation import Serving, serving_of
from helixweb.monitoring.traces import transfer_ratios


def finding_of(cluster: Cluster, *, now: datetime) -> Finding | None:
    """In words; None while nothing is served or nothing reports."""
    sample = current_sample(cluster, now=now)
    serving = serving_of(cluster, sample)
    return find(cluster, serving, sample, now=now)


def find(
    cluster: Cluster, serving: Serving | None, sample: MetricSample | None, *, now: datetime
) -> Finding | None:
    """The same, for who has read `serving` and `sample` already."""
    if serving is None or sample is None:
        return None
    load = Load(
        nodes=[
            NodeLoad(
                name=node.name,
                capacity_tokens_per_s=node.capacity_tokens_per_s,
                busy_ratio=node.busy_ratio,
                tokens_per_s=node.tokens_per_s,
                kv_used_ratio=node.kv_used_ratio,
                kv_promised_ratio=node.kv_promised_ratio,
            )
            for node in serving.nodes
            if node.planned_tokens_per_s > 0
        ],
        running=sample.running,
        waiting=sample.waiting,
        transfer_ratios=transfer_ratios(cluster, now=now),
    )
    return bottleneck(load)
