"""A cluster at one moment: its newest numbers, what it serves, its nodes, and their charts.

Pages, REST, metrics and the search for what limits read the same `Moment`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.charts.chart import Chart, percent
from helixweb.charts.live_flow import load_flow, measured_flow
from helixweb.charts.plan_graph import PlanGraph
from helixweb.charts.share_bars import FlowShare, NodeShare, flow_share, node_bars
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.cluster_load import NodeLoad
from helixweb.monitoring.history import FIELDS, SILENT_AFTER_S
from helixweb.monitoring.models import NODE_NUMBERS, MetricSample
from helixweb.monitoring.services import SHARE_WINDOW_S, detailed_sample
from helixweb.planning.expected import output_forecast
from helixweb.planning.models import Plan
from helixweb.planning.stored import kept, stored_plan
from planner import LayerRange
from planner import Plan as DomainPlan

NO_SHARE = gettext_noop("no report")
_graph = kept(PlanGraph)


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
