"""The coordinators of a cluster: which can be heard, and what they told last. Reads only."""

import json
import logging
import shlex
from datetime import datetime
from typing import Any

from django.db.models import Exists, Q, QuerySet
from pydantic import ValidationError

from helixweb.deployment.joint_report import joint_report
from helixweb.deployment.models import LIVE, SERVING, Deployment, LatestReport
from helixweb.inventory.models import Coordinator, NodeState
from helixweb.inventory.node_list import in_state
from helixweb.planning.stored import stored_plan
from runtime.protocol.control import CoordinatorReport

logger = logging.getLogger(__name__)


def coordinators_of(cluster_id: int, *, now: datetime) -> list[Coordinator]:
    """All that have joined; those that can be heard first."""
    rows = Coordinator.unscoped.filter(cluster=cluster_id)
    return sorted(rows, key=lambda row: (not is_online(row, now=now), row.pk))


def is_online(coordinator: Coordinator, *, now: datetime) -> bool:
    return coordinator.state_at(now) is NodeState.ONLINE


def online_coordinators(cluster_id: int, *, now: datetime) -> QuerySet[Coordinator]:
    """Those that can be heard."""
    return Coordinator.unscoped.filter(in_state(NodeState.ONLINE, now=now), cluster=cluster_id)


def heard_reports(cluster_id: int, *, now: datetime) -> QuerySet[LatestReport]:
    """By coordinators that can be heard, or by all if none can."""
    told = LatestReport.unscoped.filter(coordinator__cluster=cluster_id)
    online = online_coordinators(cluster_id, now=now)
    return told.filter(Q(coordinator__in=online) | ~Exists(online))


def reports_on(deployment: Deployment) -> QuerySet[LatestReport]:
    """The last reports that are about its present generation."""
    return LatestReport.unscoped.filter(
        coordinator__cluster=deployment.cluster_id, report__generation=deployment.generation
    )


def lost_stages(deployment: Deployment, *, now: datetime) -> frozenset[str]:
    """Nodes whose stages have served the present generation and are lost to every coordinator that
    can be heard; none once nodes need not serve it."""
    if deployment.status not in SERVING:
        return frozenset()
    online = online_coordinators(deployment.cluster_id, now=now)
    told = reports_on(deployment).filter(coordinator__in=online)
    lost = [frozenset(names or ()) for names in told.values_list("report__lost_nodes", flat=True)]
    return frozenset.intersection(*lost) if lost else frozenset()


def with_others(
    coordinator: Coordinator, report: CoordinatorReport, *, now: datetime
) -> CoordinatorReport:
    """What a coordinator reports now and the others of its cluster told last, as one.

    `traces` are those of this report alone: the others' have been read.
    """
    rows = LatestReport.unscoped.filter(coordinator__cluster=coordinator.cluster_id)
    heard: list[CoordinatorReport] = [report]
    silent: list[CoordinatorReport] = []
    for row in rows.exclude(coordinator=coordinator).select_related("coordinator"):
        try:
            told = CoordinatorReport.model_validate(row.report)
        except ValidationError:
            logger.info("the last report of %s is of another release", row.coordinator)
            continue
        (heard if is_online(row.coordinator, now=now) else silent).append(told)
    return joint_report(heard, silent=silent)


def coordinator_says(deployment: Deployment) -> str:
    """The message of the coordinator's last report on this very generation; "" if there is none, or
    the deployment's message has it.

    Of several the messages of all, each with its name.
    """
    if deployment.status not in LIVE:
        return ""
    # A report also has what nodes did: not all of it is read.
    told = LatestReport.unscoped.filter(coordinator__cluster=deployment.cluster_id)
    fields = ("coordinator__name", "report__generation", "report__message")
    rows = list(told.order_by("coordinator").values_list(*fields))
    says = "; ".join(
        message if len(rows) == 1 else f"{name}: {message}"
        for name, generation, message in rows
        if message and generation == deployment.generation
    )
    return "" if says in deployment.message else says


def change_of(deployment: Deployment) -> dict[str, Any] | None:
    """How far a deployment that follows another is; None when it follows none, or has taken over,
    or the coordinator has said nothing of it.

    `missing`: nodes whose stages the coordinator waits for, of `stages`; none once new requests run
    here. `leaving`: of the others, so many have not ended.
    """
    if deployment.status not in SERVING or not deployment.is_changing:
        return None
    fields = ("coming_missing", "leaving_generation", "leaving_requests")
    rows = list(reports_on(deployment).values_list(*(f"report__{field}" for field in fields)))
    missing = sorted({node for nodes, _generation, _requests in rows for node in nodes or ()})
    if not missing and all(generation is None for _nodes, generation, _requests in rows):
        return None
    stages = len(stored_plan(deployment.plan).placement.layers)
    leaving = sum(requests for _nodes, _generation, requests in rows)
    return {"missing": missing, "stages": stages, "up": stages - len(missing), "leaving": leaving}


def requests_waiting(deployment: Deployment) -> int | None:
    """As the coordinators told last of a deployment that is paused; None if it is not, or they have
    not heard so yet."""
    if deployment.paused_at is None:
        return None
    told = LatestReport.unscoped.filter(
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
