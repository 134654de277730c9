"""What limits a cluster now: gathers its newest numbers for `bottleneck.py`."""

from dataclasses import replace
from datetime import datetime

from django.core.cache import cache
from django.utils.translation import get_language

from helixweb.deployment.links import live_links, planned_flows, weights_of
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster, Node
from helixweb.monitoring.bottleneck import Finding, LinkLoad, Load, NodeLoad, bottleneck
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.node_work import StepTimes, Work
from helixweb.monitoring.presentation import MonitoredNode, Serving
from helixweb.monitoring.services import detailed
from helixweb.monitoring.traces import transfer_ratios
from helixweb.planning.stored import kept
from planner.domain.plan import Plan
from planner.domain.problem import Problem

# Rates of single heartbeats jump; over this long they are steady enough to be judged.
LATELY_S = 6
_OF_HOST = ("name", "cluster", "data_endpoint", "hardware")


def finding_of(
    cluster: Cluster, serving: Serving | None, sample: MetricSample | None, *, now: datetime
) -> Finding | None:
    """In words of the reader's language; None while nothing is served or nothing reports.

    Worked out when a page or a program asks for it; the newest one of a cluster is cached until
    there is another sample.
    """
    if serving is None or sample is None:
        return None
    key = f"finding:{cluster.pk}:{get_language()}"
    of_sample, finding = cache.get(key, (None, None))
    if of_sample != sample.pk:
        finding = bottleneck(_load(cluster, serving, sample, now=now))
        cache.set(key, (sample.pk, finding), timeout=None)
    return finding


def _load(cluster: Cluster, serving: Serving, sample: MetricSample, *, now: datetime) -> Load:
    lately = _lately(cluster, serving, sample)
    hosts = {node.name: _host(node) for node in cluster.nodes.only(*_OF_HOST)}
    return Load(
        nodes=[
            _node_load(node, lately.get(node.name), hosts.get(node.name, ""))
            for node in serving.nodes
            if node.planned_tokens_per_s > 0
        ],
        running=sample.running,
        waiting=sample.waiting,
        transfer_ratios=transfer_ratios(cluster, now=now),
        links=[] if serving.deployment is None else link_loads(serving.deployment, now=now),
    )


def _host(node: Node) -> str:
    """The machine by its name and the address that others dial: names alone may repeat."""
    name = (node.hardware or {}).get("hostname", "")
    return f"{name} ({node.host})" if name and node.host != name else node.host


def _node_load(node: MonitoredNode, work: Work | None, host: str) -> NodeLoad:
    """By what it did `_lately`, where that is known."""
    load = NodeLoad(
        name=node.name,
        capacity_tokens_per_s=node.capacity_tokens_per_s,
        busy_ratio=node.busy_ratio,
        tokens_per_s=node.tokens_per_s,
        kv_used_ratio=node.kv_used_ratio,
        kv_promised_ratio=node.kv_promised_ratio,
        host=host,
    )
    if work is None:
        return load
    busy_ratio = min(1.0, max(0.0, work.busy_s / work.elapsed_s))
    return replace(
        load,
        busy_ratio=None if node.busy_ratio is None else busy_ratio,
        tokens_per_s=max(0, work.tokens) / work.elapsed_s,
        expected_busy_ratio=None
        if work.expected_s is None
        else sum(work.expected_s) / work.elapsed_s,
        delayed_ratio=max(0.0, work.delayed_s) / work.elapsed_s,
    )


@kept
def _step_times(problem: Problem, _plan: Plan) -> StepTimes:
    return StepTimes(problem)


def _lately(cluster: Cluster, serving: Serving, sample: MetricSample) -> dict[str, Work]:
    """By node, between the counters of some seconds ago and now; without nodes started since."""
    before = detailed(
        MetricSample.unscoped.filter(
            cluster=cluster,
            second__lte=sample.second - LATELY_S,
            second__gte=sample.second - 2 * LATELY_S,
            generation=sample.generation,
            simulated_plan=None,
        ).order_by("-second")
    )
    if before is None or sample.simulated:
        return {}
    times = _step_times(serving.row)
    found = {
        node.name: times.work(
            node.name, node.layers, before.nodes.get(node.name), sample.nodes.get(node.name)
        )
        for node in serving.nodes
    }
    return {name: work for name, work in found.items() if work is not None}


def link_loads(deployment: Deployment, *, now: datetime) -> list[LinkLoad]:
    """Of links that carry planned flow and whose rate, or stall, their sender has told."""
    flows = planned_flows(deployment.plan)
    links = [link for link in live_links(deployment, now=now) if link.ends in flows]
    if not links:
        return []
    weights = weights_of(deployment)
    loads = []
    for row in links:
        measured, counted = row.stats.bandwidth_bytes_per_s or 0.0, row.planned_bytes_per_s
        if counted is None or not (measured or row.stats.stalled):
            continue
        edge = flows[row.ends]
        loads.append(
            LinkLoad(
                name=row.name,
                measured_bytes_per_s=measured,
                counted_bytes_per_s=counted,
                planned_tokens_per_s=edge.flow_tokens_per_s,
                carries_tokens_per_s=edge.capacity_tokens_per_s * measured / counted,
                queue_s=row.stats.waiting_bytes / measured if measured else 0.0,
                slow=row.slow,
                stalled=row.stats.stalled,
                follows=weights is not None and weights.counts,
                seen_full=not row.stats.bandwidth_is_floor,
            )
        )
    return loads
