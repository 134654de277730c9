"""Computes the status of a deployment from the phases of its nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.utils.translation import gettext_noop

from helixweb.access.scope import WHOLE_SITE
from helixweb.deployment.announcing import announce
from helixweb.deployment.coordinators import (
    assignments_of,
    is_online,
    lost_stages,
    reports_of,
    reports_on,
    told_by,
)
from helixweb.deployment.models import (
    LIVE,
    LOST,
    SERVING,
    Deployment,
    NodeAssignment,
    PhaseChange,
    Status,
)
from helixweb.deployment.services.draining import is_let_go
from helixweb.inventory.models import NodeState
from runtime.protocol.phases import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Progress of a node. `phase` None: it has not answered the present generation. `lost`: its
    agent is silent, or no coordinator reaches the stage that it reports as ready."""

    name: str
    phase: Phase | None
    message: str
    removed: bool
    lost: bool
    runs_instances: bool = False


class Elsewhere(NamedTuple):
    """Servers elsewhere in the place of nodes, as coordinators report them. `is_awaited`: there
    is nothing else, and none answers yet, or any more; `troubles`: why not."""

    answers: bool = False
    is_awaited: bool = False
    troubles: tuple[str, ...] = ()


class Verdict(NamedTuple):
    status: Status
    message: str = ""


_NOBODY = Elsewhere()


def verdict_in_service(
    reports: Sequence[NodeReport],
    *,
    refusals: Sequence[str] = (),
    elsewhere: Elsewhere = _NOBODY,
    unanswered: str = "",
    was_ready: bool = False,
) -> Verdict:
    """Failed if one node failed or is gone for good, the plan cannot be served for the `refusals`,
    or servers elsewhere are all there is and none answers; ready once all are and requests are not
    `unanswered` for a reason, deploying until then.

    Degraded when all were ready and one is not heard any more: its stage may serve on, or not; when
    requests are no longer answered (`was_ready`); and when an instance failed while another, the
    pipelines, or a server elsewhere answers requests.
    """
    failed = [report for report in reports if report.phase is Phase.FAILED]
    said = [
        f"{report.name}: {report.message or 'the stage failed; its log on the node says why'}"
        for report in failed
    ]
    is_answered = elsewhere.answers or _is_answered(reports)
    only_instances = failed and all(report.runs_instances for report in failed)
    is_whole = not refusals and not any(report.removed for report in reports)
    if is_answered and only_instances and is_whole:
        return Verdict(Status.DEGRADED, "\n".join(said))
    failures = [*refusals, *said]
    failures += [
        f"{report.name} was removed from the cluster; deploy a plan without it"
        for report in reports
        if report.removed
    ]
    if elsewhere.is_awaited:
        failures += elsewhere.troubles
    if failures:
        return Verdict(Status.FAILED, "\n".join(failures))
    if elsewhere.is_awaited:
        return Verdict(Status.DEPLOYING)
    if all(report.phase is Phase.READY for report in reports):
        lost = [report.name for report in reports if report.lost]
        if lost:
            nodes = "node" if len(lost) == 1 else "nodes"
            return Verdict(Status.DEGRADED, f"{nodes} {', '.join(lost)} lost")
        if not unanswered:
            return Verdict(Status.READY)
        status = Status.DEGRADED if was_ready else Status.DEPLOYING
        return Verdict(status, unanswered)
    return Verdict(Status.DEPLOYING)


def _is_answered(reports: Sequence[NodeReport]) -> bool:
    """True if one instance answers, or all stages of the pipelines beside them do."""
    there = [report.phase is Phase.READY and not report.lost for report in reports]
    instances = [ok for ok, one in zip(there, reports, strict=True) if one.runs_instances]
    stages = [ok for ok, one in zip(there, reports, strict=True) if not one.runs_instances]
    return any(instances) or (bool(stages) and all(stages))


def verdict_while_stopping(reports: Sequence[NodeReport]) -> Verdict:
    """The status while stopping: stopped once every online node holds nothing."""
    heard = [report for report in reports if not (report.removed or report.lost)]
    if all(report.phase is Phase.IDLE for report in heard):
        return Verdict(Status.STOPPED)
    return Verdict(Status.STOPPING)


def settle(deployment_id: int, *, now: datetime) -> None:
    """Bring a live deployment's status up to date with its nodes."""
    with transaction.atomic():
        rows = Deployment.light(WHOLE_SITE).select_for_update(of=("self",), no_key=True)
        deployment = rows.filter(pk=deployment_id, status__in=LIVE).first()
        if deployment is None:
            return
        reports = _reports(deployment, now)
        for row, phase in _newly_shown(deployment, reports):
            PhaseChange.objects.create(assignment=row, phase=phase, at=now)
        verdict = _verdict(deployment, reports, now=now)
        if (deployment.status, deployment.message) == verdict:
            return
        deployment.status, deployment.message = verdict
        if verdict.status is Status.READY and deployment.ready_at is None:
            deployment.ready_at = now
        if verdict.status is Status.STOPPED:
            deployment.ended_at = now
        deployment.save(update_fields=["status", "message", "ready_at", "ended_at"])
        name, why = deployment.model_name, deployment.message
        said = _said(verdict, len(reports))
        announce(deployment, said, name=name, why=why, nodes=len(reports))


def is_settled(deployment: Deployment, *, now: datetime) -> bool:
    """True if `settle` would change nothing."""
    reports = _reports(deployment, now)
    known = deployment.status, deployment.message
    is_known = known == _verdict(deployment, reports, now=now)
    return is_known and not _newly_shown(deployment, reports)


def _verdict(deployment: Deployment, reports: Sequence[NodeReport], *, now: datetime) -> Verdict:
    if deployment.status not in SERVING:
        return verdict_while_stopping(reports)
    return verdict_in_service(
        reports,
        refusals=refusals_of(deployment, now=now),
        elsewhere=_elsewhere(deployment, now=now),
        unanswered=why_unanswered(deployment, now=now),
        was_ready=deployment.status in (Status.READY, Status.DEGRADED),
    )


def refusals_of(deployment: Deployment, *, now: datetime) -> list[str]:
    """Reasons why coordinators cannot serve its present generation; none for those that can, nor
    for a silent one while another is online."""
    heard = reports_of(deployment, heard_at=now)
    refused = [t for t in heard if t.says("refused_generation") == deployment.generation]
    return [report.says("message") for report in refused]


def why_unanswered(deployment: Deployment, *, now: datetime) -> str:
    """Why no online coordinator answers requests under the present generation; empty if one
    does."""
    reports = {report.coordinator_id: report for report in reports_on(deployment)}
    whys: dict[str, str] = {}
    for row in told_by(deployment):
        report = reports.get(row.pk)
        if not is_online(row, now=now):
            whys[row.name] = f"coordinator {row.name} is not heard any more; start it again"
        elif report is None:
            whys[row.name] = f"coordinator {row.name} has not taken up the plan yet"
        elif report.says("coming_generation") is not None:
            names = ", ".join(report.says("coming_missing"))
            whys[row.name] = f"waiting for the stages of: {names}" if names else "taking over"
        elif report.says("serving"):
            return ""
        else:
            whys[row.name] = report.says("message") or "no way through the nodes is left"
    if not whys:
        return "no coordinator has joined; let one join"
    if len(set(whys.values())) == 1:
        return whys.popitem()[1]
    return "; ".join(f"{name}: {why}" for name, why in whys.items())


def _elsewhere(deployment: Deployment, *, now: datetime) -> Elsewhere:
    """Servers elsewhere, as coordinators of the present generation report them. While an earlier
    generation serves on, it is not known why those of this one do not answer."""
    rows = assignments_of(deployment)
    there = [row for row in rows if is_elsewhere(row)]
    names = {one["name"] for row in there for one in row.instances}
    if not names:
        return _NOBODY
    traffic = [
        (name, one, report.says("coming_generation") is None)
        for report in reports_on(deployment, heard_at=now)
        for name, one in report.says("instances").items()
        if name in names
    ]
    answers_now = any(one["open"] for _, one, is_present in traffic if is_present)
    troubles = (
        f"{name}: {one['message']}"
        for name, one, is_present in sorted(traffic, key=lambda each: each[0])
        if is_present and one["message"]
    )
    return Elsewhere(
        answers=any(one["open"] for _, one, _ in traffic),
        is_awaited=len(there) == len(rows) and not answers_now,
        troubles=tuple(dict.fromkeys(troubles)),
    )


def is_elsewhere(row: NodeAssignment) -> bool:
    """True if the node represents a server at a URL; coordinators report that server's state."""
    return bool(row.instances) and all(one["backend"] == "url" for one in row.instances)


def _reports(deployment: Deployment, now: datetime) -> list[NodeReport]:
    gone = lost_stages(deployment, now=now)
    return [
        NodeReport(
            name=row.node_name,
            phase=Phase(row.phase) if row.observed_generation == deployment.generation else None,
            message=row.message,
            removed=row.node is None,
            lost=row.node is not None
            and (
                row.node.state_at(now) is not NodeState.ONLINE
                or (row.phase == Phase.READY.value and row.node_name in gone)
            ),
            runs_instances=bool(row.instances),
        )
        for row in assignments_of(deployment)
        if not (is_elsewhere(row) or is_let_go(row.node))
    ]


def _newly_shown(
    deployment: Deployment, reports: Sequence[NodeReport]
) -> list[tuple[NodeAssignment, str]]:
    """Changes to add to the timeline: nodes that were lost or came back since the last one."""
    if deployment.status not in SERVING:
        return []
    lost = {report.name for report in reports if report.lost}
    return [
        (row, LOST if row.node_name in lost else row.phase)
        for row in assignments_of(deployment)
        if row.node is not None and (row.shown == LOST) != (row.node_name in lost)
    ]


def _said(verdict: Verdict, nodes: int) -> str:
    if verdict.status is Status.READY and nodes == 1:
        return gettext_noop("%(name)s is ready on one node.")
    if verdict.status not in _SAID and not verdict.message:
        return gettext_noop("%(name)s is not ready: a node is loading.")
    return _SAID.get(verdict.status, gettext_noop("%(name)s is not ready: %(why)s."))


_SAID = {
    Status.READY: gettext_noop("%(name)s is ready on %(nodes)s nodes."),
    Status.DEGRADED: gettext_noop("%(name)s is degraded: %(why)s."),
    Status.FAILED: gettext_noop("%(name)s failed: %(why)s"),
    Status.STOPPED: gettext_noop("%(name)s is stopped."),
}
