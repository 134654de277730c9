"""From rows to what the pages draw and say."""

import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q
from django.utils.translation import gettext as _

from helixweb.charts.chart import MOST_ROWS, Chart
from helixweb.charts.phase_timeline import PhaseSpan, phase_timeline
from helixweb.deployment.coordinators import coordinators_of, is_online, lost_stages
from helixweb.deployment.models import (
    LIVE,
    LOST,
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
from runtime.protocol.phases import Phase
from runtime.protocol.weight_fetch import HUB_SOURCE, SITE_SOURCE, WeightFetch, peer_name

SILENT = "silent"  # its agent; its stage may serve on
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
class FetchRow:
    """Weights that a node lacked, and from where they come. `eta_s`: until all are there."""

    needed_bytes: int
    fetched_bytes: int
    sources: Sequence[tuple[str, int]]
    eta_s: float | None


def _most_first(fetched: Mapping[str, int]) -> list[tuple[str, int]]:
    """PostgreSQL keeps no order of keys."""
    return sorted(fetched.items(), key=lambda one: -one[1])


def fetch_row(weights: dict[str, Any], *, is_loading: bool) -> FetchRow | None:
    """From a NodeWeights; None if the node fetched nothing."""
    if not weights.get("fetch"):
        return None
    fetch = WeightFetch.model_validate(weights["fetch"])
    return FetchRow(
        needed_bytes=fetch.needed_bytes,
        fetched_bytes=fetch.fetched_bytes,
        sources=[(_source(name), count) for name, count in _most_first(fetch.fetched)],
        eta_s=fetch.eta_s if is_loading else None,
    )


def _source(name: str) -> str:
    if name == SITE_SOURCE:
        return _("from the site")
    if name == HUB_SOURCE:
        return _("from the hub")
    return _("from node %(name)s") % {"name": peer_name(name)}


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
    fetch: FetchRow | None
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
    lost = lost_stages(deployment.cluster_id, deployment.generation, now=now)
    return [
        assignment_row(
            by_name[name], deployment, layers=layers[name], is_lost=name in lost, now=now
        )
        for name in names
        if name in by_name
    ]


def assignment_row(
    assignment: NodeAssignment,
    deployment: Deployment,
    *,
    layers: LayerRange,
    is_lost: bool,
    now: datetime,
) -> NodeRow:
    """One node of the deployment, which holds `layers` in it; `is_lost`: to the coordinators.

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
    elif answered and is_lost and assignment.phase == Phase.READY.value:
        phase, kind = LOST, "bad"
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
        ranks=deployment.options.ranks_of(assignment.node_name),
        is_emulated=node is not None and node.is_emulated,
        phase=phase,
        kind=kind,
        message=assignment.message if answered else "",
        loaded_ratio=assignment.loaded_ratio if answered and in_service else None,
        fetch=fetch_row(assignment.weights, is_loading=phase == Phase.LOADING.value)
        if answered and in_service
        else None,
        kv_used_ratio=(
            stats["kv_pages_used"] / stats["kv_pages_total"]
            if phase == Phase.READY.value and stats and stats["kv_pages_total"]
            else None
        ),
        heard_at=node.last_seen_at if node else None,
        drain=drain,
    )


def losses_of(deployment: Deployment, *, now: datetime) -> list[str]:
    """Which processes should be there and are not, and what to do: one sentence each."""
    if deployment.status not in SERVING:
        return []
    rows = deployment.assignments.exclude(node__drain__let_go_at__isnull=False)
    is_silent = Q(node__in=Node.objects.filter(in_state(NodeState.LOST, now=now)))
    silent = set(rows.filter(is_silent).values_list("node_name", flat=True))
    ready = rows.filter(phase=Phase.READY.value, observed_generation=deployment.generation)
    lost = lost_stages(deployment.cluster_id, deployment.generation, now=now)
    ended = lost & set(ready.values_list("node_name", flat=True))
    sentences = [
        _loss(name, has_stage=name not in ended, has_agent=name not in silent)
        for name in placed_names(deployment.plan)
        if name in silent | ended
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


def _loss(name: str, *, has_stage: bool, has_agent: bool) -> str:
    """Of one node that is not whole."""
    if has_stage:
        said = _(
            "The agent of %(name)s is silent; its stage may serve on, but nobody "
            "would start it again. Start the agent."
        )
    elif has_agent:
        said = _(
            "The coordinator does not reach the stage of %(name)s. If the stage has ended, its "
            "agent starts it again."
        )
    else:
        said = _(
            "The stage of %(name)s is lost, and its agent is silent. Start the agent; it starts "
            "the stage."
        )
    return said % {"name": name}


def coordinator_says(deployment: Deployment) -> str:
    """The message of the coordinator's last report on this very generation; "" if there is none, or
    the deployment's message has it.

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
        says = "".join(message for _name, message in said)
    else:
        says = "; ".join(f"{name}: {message}" for name, message in said)
    return "" if says in deployment.message else says


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
