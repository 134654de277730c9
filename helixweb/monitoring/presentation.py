"""What the monitor shows: samples and points into charts, tiles and a table."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from helixweb.charts.chart import Chart
from helixweb.charts.flow_share import FlowShare, flow_share
from helixweb.charts.latency import latency
from helixweb.charts.node_bars import NodeShare, node_bars
from helixweb.charts.throughput import requests_in_system, throughput
from helixweb.deployment.models import LIVE, Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import FIELDS, has_simulated, points, smallest_step_s
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.services import sample_document
from planner.domain.placement import LayerRange
from planner.serialization import plan_from_dict

TABLE_ROWS = 60
NO_SHARE = "no report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """How far back the charts go."""

    name: str
    title: str
    length: timedelta


RANGES = (
    Range(name="5m", title="5 minutes", length=timedelta(minutes=5)),
    Range(name="1h", title="1 hour", length=timedelta(hours=1)),
    Range(name="24h", title="24 hours", length=timedelta(hours=24)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredNode:
    """A node of the placement and its newest numbers; `kv_used_ratio` None: not known."""

    name: str
    layers: LayerRange
    planned_share: float
    planned_tokens_per_s: float
    kv_used_pages: int | None
    kv_total_pages: int | None
    sequences: int | None
    busy_ratio: float | None
    tokens_per_s: float | None
    flow_share: float | None

    @property
    def kv_used_ratio(self) -> float | None:
        if self.kv_used_pages is None or not self.kv_total_pages:
            return None
        return self.kv_used_pages / self.kv_total_pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a cluster serves: the deployment, its plan's flow, its nodes in the order of layers.

    Without a deployment it is what simulated traffic pretends to be served by.
    """

    deployment: Deployment | None
    max_flow_tokens_per_s: float
    nodes: tuple[MonitoredNode, ...]

    def efficiency(self, sample: MetricSample | None) -> float | None:
        """Prompt and output tokens/s measured ÷ the plan's max flow, which counts both."""
        if sample is None or self.max_flow_tokens_per_s <= 0:
            return None
        measured = sample.prompt_tokens_per_s + sample.output_tokens_per_s
        return measured / self.max_flow_tokens_per_s

    @property
    def kv_used_ratio(self) -> float | None:
        """Pages in use ÷ pages of all nodes that report."""
        known = [node for node in self.nodes if node.kv_used_ratio is not None]
        total = sum(node.kv_total_pages or 0 for node in known)
        return sum(node.kv_used_pages or 0 for node in known) / total if total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCharts:
    """One bar a node, or two."""

    busy: Chart
    kv: Chart
    flow: Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Charts over time, a point every `step_s` seconds; `simulated`: some are of no coordinator."""

    range: Range
    step_s: int
    simulated: bool
    ttft: Chart
    itl: Chart
    tokens: Chart
    requests: Chart


def live_deployment(cluster: Cluster) -> Deployment | None:
    """What the cluster is busy with."""
    return (
        Deployment.objects.filter(cluster=cluster, status__in=LIVE)
        .select_related("model", "plan")
        .defer("serving_plan", "plan__problem")
        .first()
    )


def serving_of(cluster: Cluster, sample: MetricSample | None) -> Serving | None:
    """With the numbers of `sample`, the current one if there is one. None: nothing is deployed.

    A simulated sample shows its plan, unless something is deployed.
    """
    deployment = live_deployment(cluster)
    simulated_plan = sample.simulated_plan if sample is not None else None
    if deployment is not None:
        plan = plan_from_dict(deployment.plan.document)
    elif simulated_plan is not None:
        plan = plan_from_dict(simulated_plan.document)
    else:
        return None
    said: Mapping[str, Any] = {}
    if sample is not None and (
        simulated_plan is not None
        if deployment is None
        else simulated_plan is None and sample.generation == deployment.generation
    ):
        said = sample_document(sample)["nodes"]
    flow = plan.flow.value_tokens_per_s
    placed = sorted(
        plan.placement.layers.items(), key=lambda item: (item[1].first, item[1].end, item[0])
    )
    unknown = dict.fromkeys(
        ("kv_used_pages", "kv_total_pages", "sequences", "busy_ratio", "tokens_per_s", "flow_share")
    )
    return Serving(
        deployment=deployment,
        max_flow_tokens_per_s=flow,
        nodes=tuple(
            MonitoredNode(
                name=name,
                layers=layers,
                planned_tokens_per_s=plan.flow.nodes[name].flow_tokens_per_s,
                planned_share=plan.flow.nodes[name].flow_tokens_per_s / flow if flow else 0.0,
                **said.get(name, unknown),
            )
            for name, layers in placed
        ),
    )


def node_charts(serving: Serving) -> NodeCharts:
    """monitor.js replaces the values of these bars."""
    return NodeCharts(
        busy=node_bars(
            [
                NodeShare(node=node.name, share=node.busy_ratio, text=_percent(node.busy_ratio))
                for node in serving.nodes
            ],
            what="time computing",
        ),
        kv=node_bars(
            [
                NodeShare(node=node.name, share=node.kv_used_ratio, text=_pages(node))
                for node in serving.nodes
            ],
            what="KV cache in use",
        ),
        flow=flow_share(
            [
                FlowShare(node=node.name, planned=node.planned_share, measured=node.flow_share)
                for node in serving.nodes
            ]
        ),
    )


def history(cluster: Cluster, range_: Range, *, now: datetime) -> History:
    """From `range_` ago until now."""
    since = now - range_.length
    step_s = smallest_step_s(since=since, now=now)
    found = points(cluster, since=since, until=now, step_s=step_s)
    times = [point.at for point in found]
    ends = [since.isoformat(), now.isoformat()]

    def values(name: str) -> list[float | None]:
        return [point[name] for point in found]

    return History(
        range=range_,
        step_s=step_s,
        simulated=has_simulated(cluster, since=since),
        ttft=_over(ends, latency(times, p50_s=values("ttft_p50_s"), p95_s=values("ttft_p95_s"))),
        itl=_over(ends, latency(times, p50_s=values("itl_p50_s"), p95_s=values("itl_p95_s"))),
        tokens=_over(
            ends,
            throughput(
                times,
                output_tokens_per_s=values("output_tokens_per_s"),
                prompt_tokens_per_s=values("prompt_tokens_per_s"),
            ),
        ),
        requests=_over(
            ends,
            requests_in_system(times, running=values("running"), waiting=values("waiting")),
        ),
    )


def numbers(sample: MetricSample | None) -> Mapping[str, Any]:
    """For tiles: the sample's numbers, or None for each."""
    return dict.fromkeys(FIELDS) if sample is None else sample_document(sample)


def _over(ends: list[str], chart: Chart) -> Chart:
    """The chart on an axis from end to end, its table newest first and no longer than is read."""
    layout = chart.figure["layout"]
    figure = {
        **chart.figure,
        "layout": {**layout, "xaxis": {**layout["xaxis"], "range": ends}},
    }
    return dataclasses.replace(chart, figure=figure, rows=chart.rows[: -TABLE_ROWS - 1 : -1])


def _percent(share: float | None) -> str:
    return NO_SHARE if share is None else f"{share:.0%}"


def _pages(node: MonitoredNode) -> str:
    if node.kv_used_pages is None:
        return NO_SHARE
    return f"{node.kv_used_pages} of {node.kv_total_pages} pages"
