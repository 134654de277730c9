"""What the monitor shows of now: what is served, its nodes, and their bars."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.charts.chart import Chart, percent
from helixweb.charts.share_bars import FlowShare, NodeShare, flow_share, node_bars
from helixweb.deployment.models import LIVE, Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import FIELDS
from helixweb.monitoring.models import NODE_NUMBERS, MetricSample
from helixweb.planning.expected import output_forecast
from helixweb.planning.models import Plan
from helixweb.planning.stored import stored_plan
from planner.domain.placement import LayerRange
from planner.domain.plan import Plan as DomainPlan

NO_SHARE = gettext_noop("no report")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredNode:
    """A node of the placement and its newest numbers; None: not known."""

    name: str
    layers: LayerRange
    planned_share: float
    planned_tokens_per_s: float
    capacity_tokens_per_s: float
    kv_used_pages: int | None
    kv_total_pages: int | None
    sequences: int | None
    busy_ratio: float | None
    tokens_per_s: float | None
    flow_share: float | None
    kv_promised_ratio: float | None

    @property
    def kv_used_ratio(self) -> float | None:
        if self.kv_used_pages is None or not self.kv_total_pages:
            return None
        return self.kv_used_pages / self.kv_total_pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a cluster serves: the deployment, its plan, its nodes in the order of layers.

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


def live_deployment(cluster: Cluster) -> Deployment | None:
    """What the cluster is busy with."""
    return (
        Deployment.unscoped.filter(cluster=cluster, status__in=LIVE)
        .select_related("model", "plan")
        .defer("serving_plan", "plan__problem", "plan__document")
        .first()
    )


def serving_of(cluster: Cluster, sample: MetricSample | None) -> Serving | None:
    """With the numbers of `sample`, the current one if there is one. None: nothing is deployed.

    A simulated sample shows its plan, unless something is deployed.
    """
    deployment = live_deployment(cluster)
    simulated_plan = sample.simulated_plan if sample is not None else None
    row = deployment.plan if deployment is not None else simulated_plan
    if row is None:
        return None
    plan = stored_plan(row)
    said: Mapping[str, Any] = {}
    if sample is not None and (
        simulated_plan is not None
        if deployment is None
        else simulated_plan is None and sample.generation == deployment.generation
    ):
        said = sample.node_numbers
    flows, whole = plan.flow.nodes, plan.flow.value_tokens_per_s
    placed = sorted(
        plan.placement.layers.items(), key=lambda item: (item[1].first, item[1].end, item[0])
    )
    unknown = dict.fromkeys(NODE_NUMBERS)
    return Serving(
        deployment=deployment,
        row=row,
        plan=plan,
        forecast_tokens_per_s=output_forecast(row, plan),
        nodes=tuple(
            MonitoredNode(
                name=name,
                layers=layers,
                planned_tokens_per_s=flows[name].flow_tokens_per_s,
                capacity_tokens_per_s=flows[name].capacity_tokens_per_s,
                planned_share=flows[name].flow_tokens_per_s / whole if whole else 0.0,
                **said.get(name, unknown),
            )
            for name, layers in placed
        ),
    )


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


def numbers(sample: MetricSample | None) -> Mapping[str, Any]:
    """For tiles: the sample's numbers, or None for each."""
    return dict.fromkeys(FIELDS) if sample is None else sample.numbers
