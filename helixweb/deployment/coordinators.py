"""The last reports of a deployment's processes. Reads only.

Coordinators, nodes and senders are read once per `Deployment` object and cached on it;
`observed` reads them for many deployments at once. `joint_report` joins those of a cluster's
coordinators into one, as if one had all requests: counts and rates are added; the joint median is
between theirs, so their mean is used, weighted by tokens; the joint 95th percentile is at most the
highest of theirs, which is used.
"""

import json
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, zip_longest
from operator import add
from typing import Any, TypeVar

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery, prefetch_related_objects
from pydantic import ValidationError

from helixweb.access.scope import WHOLE_SITE
from helixweb.common.json_fields import member
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
from runtime.protocol.control import (
    MOST_REQUESTS_REPORTED,
    CoordinatorReport,
    DrainProgress,
    LinkStats,
    LiveRequestState,
    NodeTraffic,
    ReportedRequest,
)
from runtime.protocol.instance_orders import InstanceTraffic
from runtime.protocol.phases import Phase

ValueT = TypeVar("ValueT")

_TOTALS = (
    "requests_total", "requests_failed_total", "requests_rejected_total", "prompt_tokens_total",
    "output_tokens_total",
)  # fmt: skip
_GAUGES = (
    "requests_running", "requests_waiting", "leaving_requests", "prompt_tokens_per_s",
    "output_tokens_per_s",
)  # fmt: skip
_MEDIANS = ("ttft_p50_s", "itl_p50_s", "tpot_p50_s", "e2e_p50_s", "queue_p50_s")
_HIGHEST = (
    "ttft_p95_s", "itl_p95_s", "tpot_p95_s", "e2e_p95_s", "refused_generation",
    "coming_generation", "leaving_generation",
)  # fmt: skip
_OF_INSTANCES = (
    "requests", "answered_total", "failed_total", "output_tokens_total", "output_tokens_per_s",
)  # fmt: skip


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


def joint_report(
    heard: Sequence[CoordinatorReport], *, silent: Sequence[CoordinatorReport] = ()
) -> CoordinatorReport:
    """Join reports of `heard` coordinators, at least one. Of `silent` ones only totals are added,
    so that totals do not fall.

    The generation is one that all heard ones have, or had. Raises ValueError when none is heard.
    """
    if not heard:
        raise ValueError("no coordinator is heard; ask for a joint report only when one is")
    all_reports = [*heard, *silent]
    if len(all_reports) == 1:
        return heard[0]

    def of(name: str, reports: Sequence[CoordinatorReport] = heard) -> list[Any]:
        return [getattr(report, name) for report in reports]

    changes: dict[str, Any] = {
        "generation": min(filter(None, of("generation")), default=0),
        "serving": any(of("serving")),
        "paused": any(of("paused")),
        "message": "; ".join(dict.fromkeys(filter(None, of("message")))),
        "coming_missing": tuple(sorted(set(chain(*of("coming_missing"))))),
        "window_s": max(of("window_s")),
        "lost_nodes": {
            node: how
            for node, how in heard[0].lost_nodes.items()
            if all(node in names for names in of("lost_nodes"))
        },
        "nodes": _nodes(of("nodes"), counted=of("nodes", all_reports)),
        "draining": _merged(of("draining"), _both_drains),
        "instances": _merged(of("instances"), _both_instances),
        "links": _merged(of("links"), _busier),
        "edge_tokens_total": _merged(of("edge_tokens_total", all_reports), add),
        "latency_counts": _merged(of("latency_counts", all_reports), _both_counts),
        "requests": _oldest(chain(*of("requests"))),
        "traces": tuple(chain(*of("traces"))),
    }
    changes |= {name: sum(of(name, all_reports)) for name in _TOTALS}
    changes |= {name: sum(of(name)) for name in _GAUGES}
    changes |= {name: _median(of(name), of("output_tokens_per_s")) for name in _MEDIANS}
    changes |= {
        name: max((number for number in of(name) if number is not None), default=None)
        for name in _HIGHEST
    }
    return heard[0].model_copy(update=changes)


def _merged(
    mappings: Iterable[Mapping[str, ValueT]], both: Callable[[ValueT, ValueT], ValueT]
) -> dict[str, ValueT]:
    """Merge mappings; `both` combines two values of the same name."""
    found: dict[str, ValueT] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            found[name] = both(found[name], value) if name in found else value
    return found


def _oldest(requests: Iterable[ReportedRequest]) -> tuple[ReportedRequest, ...]:
    """As many as one coordinator lists, in its order."""
    ordered = sorted(
        requests, key=lambda one: (one.state is not LiveRequestState.WAITING, -one.age_s)
    )
    return tuple(ordered[:MOST_REQUESTS_REPORTED])


def _median(medians: Iterable[float | None], rates: Iterable[float]) -> float | None:
    weighted = [(one, rate) for one, rate in zip(medians, rates, strict=True) if one is not None]
    weight = sum(rate for _, rate in weighted)
    if weight:
        return sum(seconds * rate for seconds, rate in weighted) / weight
    return sum(seconds for seconds, _ in weighted) / len(weighted) if weighted else None


def _nodes(
    heard: Iterable[Mapping[str, NodeTraffic]], *, counted: Iterable[Mapping[str, NodeTraffic]]
) -> dict[str, NodeTraffic]:
    tokens = _merged(
        ({name: node.tokens_total for name, node in nodes.items()} for nodes in counted), add
    )
    return {
        name: node.model_copy(update={"tokens_total": tokens[name]})
        for name, node in _merged(heard, _both_nodes).items()
    }


def _both_nodes(one: NodeTraffic, other: NodeTraffic) -> NodeTraffic:
    """A node is ready if one coordinator hears of it; room is the same for all."""
    return NodeTraffic(
        kv_estimate_token_layers=one.kv_estimate_token_layers + other.kv_estimate_token_layers,
        kv_capacity_token_layers=max(one.kv_capacity_token_layers, other.kv_capacity_token_layers),
        ready=one.ready or other.ready,
        tokens_total=one.tokens_total + other.tokens_total,
    )


def _both_instances(one: InstanceTraffic, other: InstanceTraffic) -> InstanceTraffic:
    """Open if one coordinator sends there; what it says of itself it says to all alike."""
    better = other if other.open and not one.open else one
    sums = {name: getattr(one, name) + getattr(other, name) for name in _OF_INSTANCES}
    return better.model_copy(update=sums)


def _both_drains(one: DrainProgress, other: DrainProgress) -> DrainProgress:
    requests = one.requests + other.requests
    return DrainProgress(requests=requests, needed=one.needed or other.needed)


def _both_counts(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(one, other, fillvalue=0)))


def _busier(one: LinkStats, other: LinkStats) -> LinkStats:
    """The one that most was sent over, which knows most."""
    return other if sent_bytes(other) > sent_bytes(one) else one


def sent_bytes(stats: LinkStats) -> int:
    """All that went over a link for users."""
    return stats.urgent_bytes_total + stats.bulk_bytes_total


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
