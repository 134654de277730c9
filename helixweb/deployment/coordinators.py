"""The last reports of a deployment's processes. Reads only.

Coordinators, nodes and senders are read once per `Deployment` object and cached on it;
`observed` reads them for many deployments at once.
"""

import json
import logging
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery, prefetch_related_objects
from pydantic import ValidationError

from helixweb.access.scope import WHOLE_SITE
from helixweb.common.json_fields import member
from helixweb.deployment.joint_report import joint_report
from helixweb.deployment.models import (
    LIVE,
    SERVING,
    Deployment,
    LatestReport,
    NodeAssignment,
    PhaseChange,
)
from helixweb.inventory.models import Cluster, Coordinator, Node, NodeState
from helixweb.planning.stored import stored_plan
from runtime.protocol.control import CoordinatorReport
from runtime.protocol.phases import Phase

logger = logging.getLogger(__name__)

_SHOWN = PhaseChange.unscoped.filter(assignment=OuterRef("pk")).order_by("-at", "-pk")
_COORDINATORS = Prefetch(
    "cluster__coordinators",
    Coordinator.unscoped.select_related("latest_report"),
    to_attr="coordinators_read",
)
_NODES = Prefetch(
    "cluster__nodes",
    Node.unscoped.select_related("drain").defer("hardware"),
    to_attr="nodes_read",
)
# Assignments with the phase that the timeline shows.
_ASSIGNMENTS = Prefetch(
    "assignments",
    NodeAssignment.unscoped.select_related("node__drain")
    .defer("desired", "stats", "node__hardware")
    .annotate(shown=Subquery(_SHOWN.values("phase")[:1])),
    to_attr="assignments_read",
)
# Only nodes that reported links: of many nodes most send to few others, or to none lately.
_SENDERS = Prefetch(
    "assignments",
    NodeAssignment.unscoped.filter(phase=Phase.READY.value, stats__isnull=False)
    .annotate(links=member("stats", "links"))
    .exclude(links={})
    .only("node_name", "observed_generation", "updated_at", "deployment_id"),
    to_attr="senders_read",
)


def observed() -> QuerySet[Deployment]:
    """Deployments with all rows that their state depends on, in a constant number of queries."""
    rows = Deployment.light(WHOLE_SITE).select_related("plan__run", "link_weights")
    return rows.prefetch_related(
        _COORDINATORS, _NODES, _ASSIGNMENTS, _SENDERS, "repairs", "plan__run__repair_set"
    )


def told_by(deployment: Deployment) -> Sequence[Coordinator]:
    """The coordinators of its cluster, each with its `latest_report`."""
    return _read(deployment, deployment.cluster, _COORDINATORS)


def nodes_of(deployment: Deployment) -> Sequence[Node]:
    """The nodes of its cluster, each with its `drain`."""
    return _read(deployment, deployment.cluster, _NODES)


def assignments_of(deployment: Deployment) -> Sequence[Any]:
    """Its assignments, each with its node, and as `shown` the phase that the timeline shows."""
    return _read(deployment, deployment, _ASSIGNMENTS)


def senders_of(deployment: Deployment) -> Sequence[Any]:
    """Assignments of ready stages that send something, with the `links` of their stats."""
    return _read(deployment, deployment, _SENDERS)


def _read(deployment: Deployment, owner: Deployment | Cluster, what: "Prefetch[Any]") -> list[Any]:
    """Rows of a relation, read once per object; `observed` may have read them before."""
    prefetch_related_objects([deployment], what)
    rows: list[Any] = getattr(owner, what.to_attr or "")
    return rows


def is_online(coordinator: Coordinator, *, now: datetime) -> bool:
    return coordinator.state_at(now) is NodeState.ONLINE


def reports_of(deployment: Deployment, *, heard_at: datetime | None = None) -> list[LatestReport]:
    """The last reports; with a time only of coordinators online then, unless none is."""
    rows = told_by(deployment)
    heard = [row for row in rows if heard_at is not None and is_online(row, now=heard_at)]
    return [row.latest_report for row in heard or rows if hasattr(row, "latest_report")]


def reports_on(
    deployment: Deployment, *, heard_at: datetime | None = None, online_at: datetime | None = None
) -> list[LatestReport]:
    """Those of `reports_of` on its present generation; with `online_at` only of coordinators that
    are online then."""
    return [
        report
        for report in reports_of(deployment, heard_at=heard_at)
        if report.says("generation") == deployment.generation
        and (online_at is None or is_online(report.coordinator, now=online_at))
    ]


def lost_stages(deployment: Deployment, *, now: datetime) -> frozenset[str]:
    """Nodes whose stages served the current generation and are lost to every online coordinator;
    empty if the deployment need not serve."""
    if deployment.status not in SERVING:
        return frozenset()
    reports = reports_on(deployment, online_at=now)
    lost = [frozenset(report.says("lost_nodes")) for report in reports]
    return frozenset.intersection(*lost) if lost else frozenset()


def with_others(
    coordinator: Coordinator, report: CoordinatorReport, *, now: datetime
) -> CoordinatorReport:
    """Joint report of this coordinator's report and the last ones of the others of its cluster.

    `traces` are those of this report alone; those of the others were stored before.
    """
    rows = LatestReport.unscoped.filter(coordinator__cluster=coordinator.cluster_id)
    heard: list[CoordinatorReport] = [report]
    silent: list[CoordinatorReport] = []
    for row in rows.exclude(coordinator=coordinator).select_related("coordinator"):
        try:
            other = CoordinatorReport.model_validate(row.report)
        except ValidationError:
            logger.info("the last report of %s is of another release", row.coordinator)
            continue
        (heard if is_online(row.coordinator, now=now) else silent).append(other)
    return joint_report(heard, silent=silent)


def coordinator_says(deployment: Deployment) -> str:
    """The message of the coordinator's last report on this generation; "" if there is none, or the
    deployment's message contains it.

    With several coordinators, the messages of all, each with the coordinator's name.
    """
    if deployment.status not in LIVE:
        return ""
    reports = reports_of(deployment)
    says = "; ".join(
        message if len(reports) == 1 else f"{report.coordinator.name}: {message}"
        for report in reports
        if (message := report.says("message"))
        and report.says("generation") == deployment.generation
    )
    return "" if says in deployment.message else says


def change_of(deployment: Deployment) -> dict[str, Any] | None:
    """Progress of a deployment that replaces another one; None when there is none to replace, it
    has taken over, or the coordinator has not reported on it.

    `missing`: nodes whose stages the coordinator waits for, out of `stages`; empty once new
    requests run here. `leaving`: number of requests that still run on the previous one.
    """
    if deployment.status not in SERVING or not deployment.is_changing:
        return None
    reports = reports_on(deployment)
    missing = sorted({node for report in reports for node in report.says("coming_missing")})
    if not missing and all(report.says("leaving_generation") is None for report in reports):
        return None
    stages = len(stored_plan(deployment.plan).placement.layers)
    leaving = sum(report.says("leaving_requests") for report in reports)
    return {"missing": missing, "stages": stages, "up": stages - len(missing), "leaving": leaving}


def requests_waiting(deployment: Deployment) -> int | None:
    """Requests waiting at a paused deployment, from the coordinators' last reports; None if it is
    not paused, or they do not know yet."""
    if deployment.paused_at is None:
        return None
    paused = [report for report in reports_of(deployment) if report.says("paused")]
    return sum(report.says("requests_waiting") for report in paused) if paused else None


def endpoint_urls(deployment: Deployment, *, now: datetime) -> list[str]:
    """Equivalent base URLs for OpenAI clients; those of online coordinators first."""
    rows = sorted(told_by(deployment), key=lambda row: not is_online(row, now=now))
    return [f"{row.http_url.rstrip('/')}/v1" for row in rows if row.http_url]


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
