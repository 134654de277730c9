"""A deployment's stages (layers, phase, memory, loading progress, losses) and whole-model
instances, from reports of agents and coordinators."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.charts.bars import memory_bars
from helixweb.charts.chart import MOST_ROWS, Chart
from helixweb.charts.timelines import PhaseSpan, phase_timeline
from helixweb.deployment.coordinators import joint_report, lost_stages, reports_on
from helixweb.deployment.models import (
    LIVE,
    LOST,
    Deployment,
    Drain,
    NodeAssignment,
    PhaseChange,
    Status,
)
from helixweb.inventory.models import Node, NodeState
from helixweb.planning.stored import kept, stored_plan
from planner import Plan, Problem
from runtime.protocol.control import CoordinatorReport, StageStats
from runtime.protocol.instance_orders import PIPELINES, InstanceTraffic
from runtime.protocol.phases import Phase
from runtime.protocol.trust import stays_here
from runtime.protocol.weight_fetch import HUB_SOURCE, SITE_SOURCE, WeightFetch, peer_name

SILENT = "silent"  # its agent; its stage may serve on
PHASE_KINDS = {
    Phase.IDLE: "",
    Phase.LOADING: "live",
    Phase.READY: "good",
    Phase.STOPPING: "warn",
    Phase.FAILED: "bad",
}
MAX_PHASES = 20
_NAME = "assignment__node_name"

# How much of the time in service is drawn beside the time it took to get there.
TAIL = 0.25
SHORTEST_TAIL = timedelta(seconds=2)
ELSEWHERE = "url"
# Conditions of runtime.instances.health in the words of pages, and the colour of their badge.
CONDITIONS = {
    "idle": (gettext_noop("not started"), ""),
    "waiting": (gettext_noop("failed; starts again"), "bad"),
    "starting": (gettext_noop("starting"), "live"),
    "ready": (gettext_noop("healthy"), "good"),
    "unwell": (gettext_noop("unhealthy"), "bad"),
    "draining": (gettext_noop("draining"), "warn"),
    "stopping": (gettext_noop("ending"), "warn"),
}
UNKNOWN = (gettext_noop("not heard of"), "")


class NodeStage:
    """A node's part in a deployment: `layers` of its plan. `kind` colours the badge; `phase` may
    say more than the agent does. `stats` None: its stage has reported nothing yet.

    `is_lost`: to the coordinators. Layers are the plan's; `desired` has them too, but in a large
    cluster it is long.
    """

    def __init__(self, assignment: NodeAssignment, *, is_lost: bool, now: datetime) -> None:
        self.assignment, self.deployment = assignment, assignment.deployment
        answered = assignment.observed_generation == self.deployment.generation
        is_shown = answered and self.deployment.status in LIVE
        self.drain: Drain | None = getattr(assignment.node, "drain", None)
        self.layers = stored_plan(self.deployment.plan).placement.layers[assignment.node_name]
        self.phase, self.kind = self._phase(answered=answered, is_lost=is_lost, now=now)
        self.message = assignment.message if answered else ""
        self.loaded_ratio = assignment.loaded_ratio if is_shown else None
        is_loading = self.phase == Phase.LOADING.value
        self.fetch = _fetch_row(assignment, is_loading=is_loading) if is_shown else None
        stats = assignment.stats
        self.stats = StageStats.model_validate(stats) if stats else None

    def _phase(self, *, answered: bool, is_lost: bool, now: datetime) -> tuple[str, str]:
        phase, node = Phase(self.assignment.phase), self.assignment.node
        if self.deployment.status not in LIVE:
            return "ended", ""
        if node is None:
            return "removed", "bad"
        if self.drain is not None and self.drain.state is not Drain.State.DRAINING:
            return self.drain.state.value, "warn"
        if answered and is_lost and phase is Phase.READY:
            return LOST, "bad"
        if node.state_at(now) is NodeState.LOST:
            return SILENT, "bad"
        return (phase.value, PHASE_KINDS[phase]) if answered else ("waiting", "")

    @property
    def ranks(self) -> int:
        """Number of ranks that share each layer (tensor parallelism)."""
        return self.deployment.options.ranks_of(self.assignment.node_name)

    @property
    def kv_used_ratio(self) -> float | None:
        if self.phase != Phase.READY.value or not self.stats or not self.stats.kv_pages_total:
            return None
        return self.stats.kv_pages_used / self.stats.kv_pages_total

    @property
    def is_slow(self) -> bool:
        """True if its engine says that a fast kernel is missing."""
        return self.stats is not None and "slow" in self.stats.engine


def stages_of(nodes: Iterable[Node], *, now: datetime) -> dict[int, NodeStage]:
    """Stages in live deployments by node id; nodes without layers are left out."""
    rows = NodeAssignment.unscoped.filter(
        node__in=[node.pk for node in nodes], deployment__status__in=LIVE
    )
    found = _stages(rows, now=now)
    return {pk: stage for stage in found if (pk := stage.assignment.node_id) is not None}


def node_rows(deployment: Deployment, names: Sequence[str], *, now: datetime) -> list[NodeStage]:
    """Stages of the named nodes, in this order."""
    found = _stages(deployment.assignments.filter(node_name__in=names), now=now)
    return sorted(found, key=lambda stage: names.index(stage.assignment.node_name))


def _stages(rows: QuerySet[NodeAssignment], *, now: datetime) -> list[NodeStage]:
    assignments = rows.select_related("deployment__plan", "node__drain").defer("desired")
    deployments = {row.deployment_id: row.deployment for row in assignments}
    lost = {pk: lost_stages(one, now=now) for pk, one in deployments.items()}
    return [
        NodeStage(row, is_lost=row.node_name in lost[row.deployment_id], now=now)
        for row in assignments
    ]


def _fetch_row(assignment: NodeAssignment, *, is_loading: bool) -> dict[str, Any] | None:
    """Table row of weights that the node fetches, by source; `eta_s`: time until all are there.
    None if it fetched nothing."""
    if not assignment.weights.get("fetch"):
        return None
    fetch = WeightFetch.model_validate(assignment.weights["fetch"])
    most_first = sorted(fetch.fetched.items(), key=lambda one: -one[1])
    return {
        "needed_bytes": fetch.needed_bytes,
        "fetched_bytes": fetch.fetched_bytes,
        "sources": [(_source(name), count) for name, count in most_first],
        "eta_s": fetch.eta_s if is_loading else None,
    }


def _source(name: str) -> str:
    if name == SITE_SOURCE:
        return _("from the site")
    if name == HUB_SOURCE:
        return _("from the hub")
    return _("from node %(name)s") % {"name": peer_name(name)}


@kept
def placed_names(_problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Every node of the placement in the order of its layers."""
    layers = plan.placement.layers
    return tuple(sorted(layers, key=lambda name: (layers[name].first, layers[name].end, name)))


def timeline_of(deployment: Deployment, *, now: datetime) -> Chart:
    """Each node's phases from the start of the deployment until a little after the last change.

    Of more than `MOST_ROWS` nodes those that entered a phase last.
    """
    rows = PhaseChange.unscoped.filter(assignment__deployment=deployment)
    changes = list(rows.select_related("assignment").only("phase", "message", "at", _NAME))
    changes_of: dict[str, list[PhaseChange]] = defaultdict(list)
    for change in changes:
        changes_of[change.assignment.node_name].append(change)
    start = deployment.created_at
    end = _end(deployment, changes, now)
    names: Sequence[str] = placed_names(deployment.plan)
    if len(names) > MOST_ROWS:
        latest = {name: mine[-1].at for name, mine in changes_of.items()}
        names = sorted(names, key=lambda name: latest.get(name, end), reverse=True)[:MOST_ROWS]
    spans = []
    for name in names:
        entered = [(one.at, one.phase, one.message) for one in changes_of[name]]
        entered = [(start, "waiting", _("not answered yet")), *entered, (end, "", "")]
        for (begin, phase, note), (until, *_next) in pairwise(entered):
            spans.append(
                PhaseSpan(
                    node=name,
                    phase=phase,
                    begin_s=(begin - start).total_seconds(),
                    end_s=(max(until, begin) - start).total_seconds(),
                    note=note,
                )
            )
    return phase_timeline(spans)


def _end(deployment: Deployment, changes: Sequence[PhaseChange], now: datetime) -> datetime:
    """End of the time axis: now while something is in progress; else after the last change."""
    moving = {Status.DEPLOYING, Status.STOPPING}
    if deployment.status in moving or not changes:
        return now if deployment.status in LIVE else deployment.ended_at or now
    last = changes[-1].at
    tail = max(SHORTEST_TAIL, TAIL * (last - deployment.created_at))
    return min(now, last + tail)


def memory_chart(node: Node, stats: StageStats) -> Chart:
    """Bars of the memory used by the stage's weights and pages, of what the node may use."""
    hardware = node.hardware or {}
    used = stats.kv_pages_used / stats.kv_pages_total if stats.kv_pages_total else 0.0
    cached = stats.kv_pages_cached / stats.kv_pages_total if stats.kv_pages_total else 0.0
    taken = stats.weights_bytes + stats.kv_bytes
    budget = max(float(hardware.get("memory_budget_bytes", taken)), float(taken))
    whole = max(float(hardware.get("memory_bytes", budget)), budget)
    for gpu in hardware.get("gpus", [])[:1]:
        whole = max(float(gpu["memory_bytes"]) * len(hardware["gpus"]), budget)
    parts = {
        "weights": float(stats.weights_bytes),
        "KV cache in use": stats.kv_bytes * used,
        "KV cache kept for prompts": stats.kv_bytes * cached,
        "KV cache free": stats.kv_bytes * max(0.0, 1 - used - cached),
        "left for computing": budget - taken,
        "not for the stage": whole - budget,
    }
    return memory_bars({node.name: parts})


def phases_of(node: Node) -> list[PhaseChange]:
    """The last phases it entered, in any deployment; the newest first."""
    changes = PhaseChange.unscoped.filter(assignment__node=node)
    return list(
        changes.select_related("assignment__deployment").order_by("-at", "-pk")[:MAX_PHASES]
    )


def instances_view(
    deployment: Deployment, *, now: datetime, node_name: str | None = None
) -> dict[str, Any] | None:
    """`rows` of those of the deployment, or of one of its nodes; None where there are none.

    `pipelines` is what coordinators send to the pipelines beside the instances.
    """
    rows = deployment.assignments.exclude(instances=[]).select_related("node").order_by("pk")
    if node_name is not None:
        rows = rows.filter(node_name=node_name)
    assignments = list(rows.defer("desired", "stats", "node__hardware"))
    if not assignments:
        return None
    traffic = _traffic(deployment, now=now)
    answered = sum(one.answered_total for one in traffic.values())
    plan = stored_plan(deployment.plan)
    predicted = {one.name: one.output_tokens_per_s for one in plan.instances}
    pipelines = traffic.get(PIPELINES)
    return {
        "rows": [
            _row(order, assignment, traffic=traffic, answered=answered, predicted=predicted)
            for assignment in assignments
            for order in assignment.instances
        ],
        "pipelines": pipelines,
        "pipelines_share": pipelines.answered_total / answered if pipelines and answered else None,
        "theta": deployment.theta,
    }


def _traffic(deployment: Deployment, *, now: datetime) -> Mapping[str, InstanceTraffic]:
    """Traffic by instance of the current generation, from online coordinators' joint report."""
    reports = reports_on(deployment, online_at=now)
    heard = [CoordinatorReport.model_validate(one.report) for one in reports]
    return joint_report(heard).instances if heard else {}


def _is_unencrypted(url: str) -> bool:
    """True for plain HTTP to a host other than localhost."""
    return url.startswith("http:") and not stays_here(url)


def _row(
    order: dict[str, Any],
    assignment: NodeAssignment,
    *,
    traffic: Mapping[str, InstanceTraffic],
    answered: int,
    predicted: Mapping[str, float],
) -> dict[str, Any]:
    """Table row of an instance, from reports of its agent and the coordinators; None: not reported.

    `share` is of all answers begun since coordinators last got a change of the instances.
    `left_alone`: healthy, but gets no requests because some failed there. `unencrypted`: traffic to
    a server elsewhere can be read on the network.
    """
    name = order["name"]
    observed = {one["name"]: one for one in assignment.observed_instances}.get(name, {})
    sent = traffic.get(name)
    is_elsewhere = order["backend"] == ELSEWHERE
    condition = sent.condition if is_elsewhere and sent else observed.get("condition", "")
    words, kind = CONDITIONS.get(condition, UNKNOWN)
    left_alone = condition == "ready" and sent is not None and not sent.open
    message = observed.get("message", "")
    if sent is not None and (is_elsewhere or condition == "ready") and not message:
        message = sent.message
    return {
        "name": name,
        "node": assignment.node_name,
        "node_id": assignment.node_id,
        "backend": order["backend"],
        "url": order["url"],
        "unencrypted": _is_unencrypted(order["url"]),
        "gpus": tuple(order["gpus"]),
        "condition": words,
        "kind": "warn" if left_alone else kind,
        "left_alone": left_alone,
        "message": message.partition("; its log ends:")[0],
        "log_tail": observed.get("log_tail", "") or message.partition("; its log ends:")[2],
        "progress": observed.get("progress"),
        "requests": sent.requests if sent else observed.get("requests"),
        "waiting": sent.waiting if sent else None,
        "kv_usage": sent.kv_usage if sent else observed.get("kv_usage"),
        "share": sent.answered_total / answered if sent and answered else None,
        "answered": sent.answered_total if sent else None,
        "failures": sent.failed_total if sent else None,
        "output_tokens_per_s": sent.output_tokens_per_s if sent else None,
        "predicted_tokens_per_s": predicted.get(name, 0.0),
    }
