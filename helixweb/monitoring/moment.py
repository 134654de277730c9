"""A cluster at one moment: its newest numbers, what it serves, its nodes, and their charts.

Pages, REST, metrics and the search for what limits (`bottleneck.py`) read the same `Moment`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from django.core.cache import cache
from django.utils.translation import get_language, gettext_noop
from django.utils.translation import gettext as _

from helixweb.charts.bars import FlowShare, NodeShare, flow_share, node_bars
from helixweb.charts.chart import Chart, percent
from helixweb.charts.flow_diagrams import load_flow, measured_flow
from helixweb.charts.plan_graph import PlanGraph
from helixweb.deployment.links import live_links, planned_flows, weights_of
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster, Node
from helixweb.monitoring.bottleneck import Finding, bottleneck
from helixweb.monitoring.cluster_load import LinkLoad, Load, NodeLoad
from helixweb.monitoring.history import FIELDS, SILENT_AFTER_S
from helixweb.monitoring.models import NODE_NUMBERS, MetricSample
from helixweb.monitoring.node_work import StepTimes, Work
from helixweb.monitoring.services import SHARE_WINDOW_S, detailed_sample, transfer_ratios
from helixweb.planning.expected import output_forecast
from helixweb.planning.models import Plan
from helixweb.planning.stored import kept, stored_plan
from planner import LayerRange, Problem
from planner import Plan as DomainPlan

NO_SHARE = gettext_noop("no report")
_graph = kept(PlanGraph)


# Rates of single heartbeats jump; over this long they are steady enough to be judged.
LATELY_S = 6
_OF_HOST = ("name", "cluster", "data_endpoint", "hardware")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredNode(NodeLoad):
    """A node of the placement and its newest numbers; None: not known."""

    layers: LayerRange
    planned_share: float
    planned_tokens_per_s: float
    kv_used_pages: int | None
    kv_total_pages: int | None
    sequences: int | None
    flow_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Serving state of a cluster: the deployment, its plan, its nodes in the order of layers.

    Without a deployment it is what simulated traffic pretends to be served by. The forecast is of
    output tokens/s while requests always wait; None: there is none.
    """

    deployment: Deployment | None
    row: Plan
    plan: DomainPlan
    forecast_tokens_per_s: float | None
    nodes: tuple[MonitoredNode, ...]

    @property
    def max_flow_tokens_per_s(self) -> float:
        return self.plan.flow.value_tokens_per_s

    @property
    def kv_used_ratio(self) -> float | None:
        """Pages in use ÷ pages of all nodes that report."""
        known = [node for node in self.nodes if node.kv_used_ratio is not None]
        total = sum(node.kv_total_pages or 0 for node in known)
        return sum(node.kv_used_pages or 0 for node in known) / total if total else None

    def flow_chart(self, sample: MetricSample | None) -> Chart:
        """Flow of the minute until `sample` over every connection, beside the planned one."""
        return measured_flow(_graph(self.row), measured_rates(sample))

    def load_chart(self, sample: MetricSample | None) -> Chart:
        """Chart of the utilisation of nodes and links, until `sample`."""
        busy = {node.name: node.busy_ratio for node in self.nodes}
        return load_flow(_graph(self.row), measured_rates(sample), busy)


@dataclass
class Moment:
    """State of a cluster at `now`, read lazily."""

    cluster: Cluster
    now: datetime

    @cached_property
    def latest(self) -> MetricSample | None:
        """The last sample, however old."""
        return MetricSample.unscoped.filter(cluster=self.cluster).order_by("-second").first()

    @cached_property
    def sample(self) -> MetricSample | None:
        """The last one unless the coordinator has fallen silent since."""
        is_current = self.age_s is not None and self.age_s <= SILENT_AFTER_S
        return self.latest if is_current else None

    @property
    def age_s(self) -> float | None:
        """Since the last report."""
        latest = self.latest
        return None if latest is None else max(0.0, (self.now - latest.at).total_seconds())

    @property
    def numbers(self) -> Mapping[str, Any]:
        """The sample's numbers for tiles, or None for each."""
        return dict.fromkeys(FIELDS) if self.sample is None else self.sample.numbers

    @cached_property
    def deployment(self) -> Deployment | None:
        return Deployment.live(self.cluster.pk)

    @cached_property
    def serving(self) -> Serving | None:
        """The deployment, else the plan of a simulated sample; None: neither."""
        deployment, sample = self.deployment, self.sample
        simulated_plan = None if sample is None else sample.simulated_plan
        row = simulated_plan if deployment is None else deployment.plan
        if row is None:
            return None
        is_of_it = sample is not None and (
            deployment is None
            or (simulated_plan is None and sample.generation == deployment.generation)
        )
        plan = stored_plan(row)
        return Serving(
            deployment=deployment,
            row=row,
            plan=plan,
            forecast_tokens_per_s=output_forecast(row, plan),
            nodes=_nodes(plan, sample.node_numbers if sample and is_of_it else {}),
        )


def _nodes(plan: DomainPlan, said: Mapping[str, Any]) -> tuple[MonitoredNode, ...]:
    """Nodes of the placement, in the order of layers."""
    flows, whole = plan.flow.nodes, plan.flow.value_tokens_per_s
    nodes = []
    for name, layers in plan.placement.layers.items():
        numbers = said.get(name, dict.fromkeys(NODE_NUMBERS))
        used, total = numbers["kv_used_pages"], numbers["kv_total_pages"]
        nodes.append(
            MonitoredNode(
                name=name,
                layers=layers,
                planned_tokens_per_s=flows[name].flow_tokens_per_s,
                capacity_tokens_per_s=flows[name].capacity_tokens_per_s,
                planned_share=flows[name].flow_tokens_per_s / whole if whole else 0.0,
                kv_used_ratio=used / total if used is not None and total else None,
                **numbers,
            )
        )
    return tuple(sorted(nodes, key=lambda node: (node.layers.first, node.layers.end, node.name)))


def measured_rates(sample: MetricSample | None) -> dict[tuple[str, str], float] | None:
    """Tokens/s by (source, target) over the minute until `sample`; None: not known.

    A coordinator that was started again within the minute counts from zero: not known.
    """
    if sample is None or not sample.edge_tokens_total:
        return None
    before = detailed_sample(
        sample.cluster_id,
        sample.generation,
        since=sample.second - SHARE_WINDOW_S,
        until=sample.second,
        column="edge_tokens_total",
    )
    if before is None:
        return None
    elapsed_s = sample.second - before.second
    rates = {}
    for edge, total in sample.edge_tokens_total.items():
        source, _, target = edge.partition("->")
        rates[source, target] = (total - before.edge_tokens_total.get(edge, 0)) / elapsed_s
    return None if any(rate < 0 for rate in rates.values()) else rates


def node_charts(serving: Serving) -> dict[str, Chart]:
    """One bar a node, or two; monitor.js replaces the values of these bars."""
    nodes, no_share = serving.nodes, _(NO_SHARE)
    pages = _("%(kv_used_pages)s of %(kv_total_pages)s pages")

    def busy_text(node: MonitoredNode) -> str:
        return no_share if node.busy_ratio is None else percent(node.busy_ratio, decimals=0)

    def pages_text(node: MonitoredNode) -> str:
        if node.kv_used_pages is None:
            return no_share
        return pages % {
            "kv_used_pages": node.kv_used_pages,
            "kv_total_pages": node.kv_total_pages,
        }

    return {
        "busy": node_bars(
            [NodeShare(node.name, node.busy_ratio, busy_text(node)) for node in nodes],
            what=_("time computing"),
        ),
        "kv": node_bars(
            [NodeShare(node.name, node.kv_used_ratio, pages_text(node)) for node in nodes],
            what=_("KV cache in use"),
        ),
        "flow": flow_share(
            [FlowShare(node.name, node.planned_share, node.flow_share) for node in nodes]
        ),
    }


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
def _step_times(problem: Problem, _plan: DomainPlan) -> StepTimes:
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
