"""From rows to what the pages draw and say."""

import json
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils.translation import gettext as _

from helixweb.charts.chart import MOST_ROWS, Chart
from helixweb.charts.phase_timeline import PhaseSpan, phase_timeline
from helixweb.deployment.coordinators import coordinators_of, is_online
from helixweb.deployment.models import (
    LIVE,
    SERVING,
    Deployment,
    Drain,
    LatestReport,
    NodeAssignment,
    PhaseChange,
    Status,
)
from helixweb.inventory.models import Node, NodeState
from helixweb.inventory.node_list import in_state
from helixweb.planning.stored import kept, stored_plan
from planner.domain.placement import LayerRange
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from runtime.protocol.control import Phase

SILENT = "silent"
PHASE_KINDS = {
    Phase.IDLE: "",
    Phase.LOADING: "live",
    Phase.READY: "good",
    Phase.STOPPING: "warn",
    Phase.FAILED: "bad",
}

# How much of the time in service is drawn beside the time it took to get there.
TAIL = 0.25
SHORTEST_TAIL = timedelta(seconds=2)


class _Change(NamedTuple):
    """A node of the deployment entered a phase."""

    node: str
    phase: str
    message: str
    at: datetime


def timeline_of(deployment: Deployment, *, now: datetime) -> Chart:
    """Each node's phases from the start of the deployment until a little after the last change.

    Of more than `MOST_ROWS` nodes those that entered a phase last.
    """
    rows = PhaseChange.objects.filter(assignment__deployment=deployment).values_list(
        "assignment__node_name", "phase", "message", "at"
    )
    changes = [_Change(*row) for row in rows]
    changes_of: dict[str, list[_Change]] = defaultdict(list)
    for change in changes:
        changes_of[change.node].append(change)
    start = deployment.created_at
    end = _end(deployment, changes, now)
    names: Sequence[str] = placed_names(deployment.plan)
    if len(names) > MOST_ROWS:
        latest = {name: mine[-1].at for name, mine in changes_of.items()}
        names = sorted(names, key=lambda name: latest.get(name, end), reverse=True)[:MOST_ROWS]
    spans = []
    for name in names:
        mine = changes_of[name]
        begins = [start, *(change.at for change in mine)]
        phases = ["waiting", *(change.phase for change in mine)]
        notes = [_("not answered yet"), *(change.message for change in mine)]
        for phase, note, begin, until in zip(
            phases, notes, begins, [*begins[1:], end], strict=True
        ):
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


def _end(deployment: Deployment, changes: Sequence[_Change], now: datetime) -> datetime:
    """Now while something is under way; else a little after the last change."""
    moving = {Status.DEPLOYING, Status.STOPPING}
    if deployment.status in moving or not changes:
        return now if deployment.status in LIVE else deployment.ended_at or now
    last = changes[-1].at
    tail = max(SHORTEST_TAIL, TAIL * (last - deployment.created_at))
    return min(now, last + tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One line of the table of nodes. `kind` colours the badge; `phase` may say more than it.
    `ranks` share each of the layers."""

    name: str
    node_id: int | None
    layers: LayerRange
    ranks: int
    is_emulated: bool
    phase: str
    kind: str
    message: str
    loaded_ratio: float | None
    kv_used_ratio: float | None
    heard_at: datetime | None
    drain: Drain | None


@kept
def placed_names(_problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Every node of the placement in the order of its layers."""
    layers = plan.placement.layers
    return tuple(sorted(layers, key=lambda name: (layers[name].first, layers[name].end, name)))


def node_rows(deployment: Deployment, names: Sequence[str], *, now: datetime) -> list[NodeRow]:
    """Of some of its nodes, in this order."""
    layers = stored_plan(deployment.plan).placement.layers
    rows = deployment.assignments.filter(node_name__in=names).select_related("node__drain")
    by_name = {row.node_name: row for row in rows.defer("desired")}
    return [
        assignment_row(by_name[name], deployment, layers=layers[name], now=now)
        for name in names
        if name in by_name
    ]


def assignment_row(
    assignment: NodeAssignment, deployment: Deployment, *, layers: LayerRange, now: datetime
) -> NodeRow:
    """One node of the deployment, which holds `layers` in it.

    They are the plan's; `desired` says them too, but in a large cluster it is long.
    """
    node, stats = assignment.node, assignment.stats
    answered = assignment.observed_generation == deployment.generation
    in_service = deployment.status in LIVE
    drain: Drain | None = getattr(node, "drain", None)
    if not in_service:
        phase, kind = "ended", ""
    elif node is None:
        phase, kind = "removed", "bad"
    elif drain is not None and drain.state is not Drain.State.DRAINING:
        phase, kind = drain.state.value, "warn"
    elif node.state_at(now) is NodeState.LOST:
        phase, kind = SILENT, "bad"
    elif not answered:
        phase, kind = "waiting", ""
    else:
        phase, kind = assignment.phase, PHASE_KINDS[Phase(assignment.phase)]
    return NodeRow(
        name=assignment.node_name,
        node_id=assignment.node_id,
        layers=layers,
        ranks=deployment.ranks_of(assignment.node_name),
        is_emulated=node is not None and node.is_emulated,
        phase=phase,
        kind=kind,
        message=assignment.message if answered else "",
        loaded_ratio=assignment.loaded_ratio if answered and in_service else None,
        kv_used_ratio=(
            stats["kv_pages_used"] / stats["kv_pages_total"]
            if phase == Phase.READY.value and stats and stats["kv_pages_total"]
            else None
        ),
        heard_at=node.last_seen_at if node else None,
        drain=drain,
    )


def silence_of(deployment: Deployment, *, now: datetime) -> list[str]:
    """Who should be heard and is not, one sentence each."""
    if deployment.status not in SERVING:
        return []
    lost = Node.objects.filter(
        in_state(NodeState.LOST, now=now), assignments__deployment=deployment
    )
    lost = lost.exclude(drain__let_go_at__isnull=False)
    silent = set(lost.values_list("assignments__node_name", flat=True))
    sentences = [
        _(
            "The agent of %(name)s is silent; its stage may serve on, but nobody "
            "would start it again. Start the agent."
        )
        % {"name": name}
        for name in placed_names(deployment.plan)
        if name in silent
    ]
    coordinators = coordinators_of(deployment.cluster_id, now=now)
    if not coordinators:
        sentences.append(_("The coordinator was removed; let one join from the cluster's page."))
    sentences += [
        _("Coordinator %(name)s is silent; clients may get no answer. Start it again.")
        % {"name": coordinator.name}
        for coordinator in coordinators
        if not is_online(coordinator, now=now)
    ]
    return sentences


def coordinator_says(deployment: Deployment) -> str:
    """The message of the coordinator's last report on this very generation; "" if there is none.

    Of several the messages of all, each with its name.
    """
    if deployment.status not in LIVE:
        return ""
    # A report also has what nodes did: not all of it is read.
    told = LatestReport.objects.filter(coordinator__cluster=deployment.cluster_id)
    rows = list(
        told.order_by("coordinator").values_list(
            "coordinator__name", "report__generation", "report__message"
        )
    )
    said = [
        (name, message)
        for name, generation, message in rows
        if message and generation == deployment.generation
    ]
    if len(rows) == 1:
        return "".join(message for _name, message in said)
    return "; ".join(f"{name}: {message}" for name, message in said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How far a deployment that follows another is. `missing`: nodes whose stages the coordinator
    waits for, of `stages`; none once new requests run here. `leaving`: of the others, so many have
    not ended."""

    missing: tuple[str, ...]
    stages: int
    leaving: int

    @property
    def up(self) -> int:
        return self.stages - len(self.missing)


def change_of(deployment: Deployment) -> Change | None:
    """None when it follows none, or has taken over, or the coordinator has said nothing of it."""
    if deployment.status not in SERVING or not deployment.is_changing:
        return None
    told = LatestReport.objects.filter(
        coordinator__cluster=deployment.cluster_id, report__generation=deployment.generation
    )
    fields = ("coming_missing", "leaving_generation", "leaving_requests")
    rows = list(told.values_list(*(f"report__{field}" for field in fields)))
    missing = sorted({node for nodes, _generation, _requests in rows for node in nodes or ()})
    if not missing and all(generation is None for _nodes, generation, _requests in rows):
        return None
    return Change(
        missing=tuple(missing),
        stages=len(placed_names(deployment.plan)),
        leaving=sum(requests for _nodes, _generation, requests in rows),
    )


def drains_of(deployment: Deployment) -> list[Drain]:
    """Nodes of its cluster that are drained or on the way there."""
    rows = Drain.objects.filter(node__cluster=deployment.cluster_id)
    return list(rows.select_related("node").defer("node__hardware"))


def requests_waiting(deployment: Deployment) -> int | None:
    """As the coordinators told last of a deployment that is paused; None if it is not, or they have
    not heard so yet."""
    if deployment.paused_at is None:
        return None
    told = LatestReport.objects.filter(
        coordinator__cluster=deployment.cluster_id, report__paused=True
    )
    waiting = list(told.values_list("report__requests_waiting", flat=True))
    return sum(waiting) if waiting else None


def endpoint_urls(deployment: Deployment, *, now: datetime) -> list[str]:
    """Where OpenAI clients reach it, each as good as the others; coordinators that can be heard
    first."""
    return [
        f"{coordinator.http_url.rstrip('/')}/v1"
        for coordinator in coordinators_of(deployment.cluster_id, now=now)
        if coordinator.http_url
    ]


def curl_command(deployment: Deployment, base_url: str) -> str:
    """One chat request, ready to paste into a shell once the key is filled in."""
    body = {
        "model": deployment.model_name,
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
    }
    return (
        f"curl -N {shlex.quote(f'{base_url}/chat/completions')} \\\n"
        '  -H "Authorization: Bearer YOUR_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )
