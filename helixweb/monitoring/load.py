"""Collects a cluster's newest numbers for `bottleneck.py`."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from django.core.cache import cache
from django.utils.translation import get_language

from helixweb.deployment.links import live_links, planned_flows, weights_of
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Node
from helixweb.monitoring.bottleneck import Finding, bottleneck
from helixweb.monitoring.cluster_load import LinkLoad, Load
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.moment import Moment, MonitoredNode, Serving
from helixweb.monitoring.node_work import StepTimes, Work
from helixweb.monitoring.services import detailed_sample
from helixweb.monitoring.traces import transfer_ratios
from helixweb.planning.stored import kept
from planner import Plan, Problem

# Rates of single heartbeats jump; over this long they are steady enough to be judged.
LATELY_S = 6
_OF_HOST = ("name", "cluster", "data_endpoint", "hardware")


def finding_of(moment: Moment) -> Finding | None:
    """The finding in the reader's language; None while nothing is served or nothing reports.

    Computed on request; the newest one of a cluster is cached until the next sample.
    """
    if moment.serving is None or moment.sample is None:
        return None
    key = f"finding:{moment.cluster.pk}:{get_language()}"
    of_sample: int | None
    finding: Finding
    of_sample, finding = cache.get(key, (None, None))
    if of_sample != moment.sample.pk:
        finding = bottleneck(_load(moment, moment.serving, moment.sample))
        cache.set(key, (moment.sample.pk, finding), timeout=None)
    return finding


def _load(moment: Moment, serving: Serving, sample: MetricSample) -> Load:
    lately = _lately(serving, sample)
    hosts = {node.name: _host(node) for node in moment.cluster.nodes.only(*_OF_HOST)}
    deployment = serving.deployment
    return Load(
        nodes=[
            replace(node, host=hosts.get(node.name, ""), **_of_work(node, lately.get(node.name)))
            for node in serving.nodes
            if node.planned_tokens_per_s > 0
        ],
        running=sample.running,
        waiting=sample.waiting,
        transfer_ratios=transfer_ratios(moment.cluster, now=moment.now),
        links=[] if deployment is None else link_loads(deployment, now=moment.now),
    )


def _host(node: Node) -> str:
    """The machine by its name and the address that others dial: names alone may repeat."""
    name = (node.hardware or {}).get("hostname", "")
    return f"{name} ({node.host})" if name and node.host != name else node.host


def _of_work(node: MonitoredNode, work: Work | None) -> dict[str, Any]:
    """Numbers of a node by what it did `_lately`, where that is known."""
    if work is None:
        return {}
    expected_s, elapsed_s = work.expected_s, work.elapsed_s
    busy_ratio = min(1.0, max(0.0, work.busy_s / elapsed_s))
    return {
        "busy_ratio": None if node.busy_ratio is None else busy_ratio,
        "tokens_per_s": max(0, work.tokens) / elapsed_s,
        "expected_busy_ratio": None if expected_s is None else sum(expected_s) / elapsed_s,
        "delayed_ratio": max(0.0, work.delayed_s) / elapsed_s,
    }


@kept
def _step_times(problem: Problem, _plan: Plan) -> StepTimes:
    return StepTimes(problem)


def _lately(serving: Serving, sample: MetricSample) -> dict[str, Work]:
    """Work by node, from counters of some seconds ago and now; without nodes started since."""
    until = sample.second - LATELY_S
    before = detailed_sample(
        sample.cluster_id, sample.generation, since=until - LATELY_S, until=until + 1, newest=True
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
    """Loads of links with planned flow whose sender has reported their rate or a stall."""
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
