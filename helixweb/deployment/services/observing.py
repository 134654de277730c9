"""Stores and announces heartbeats of agents and reports of coordinators, and updates deployments.

Rows of all nodes whose heartbeats are answered together are read at once, and what nearly every
heartbeat changes is written at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db import connection, transaction
from django.db.models import F, OuterRef, Subquery
from django.utils import timezone
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.deployment.announcing import announce, nudge_page, wake, wake_coordinators
from helixweb.deployment.coordinators import with_others
from helixweb.deployment.models import (
    SERVING,
    STANDING,
    Deployment,
    Drain,
    LatestReport,
    NodeAssignment,
    PhaseChange,
    Profiling,
)
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.draining import follow_drains, is_empty, note_drained
from helixweb.deployment.services.key_limits import book_spending
from helixweb.deployment.services.repairing import repair_after_commit
from helixweb.deployment.settling import settle
from helixweb.deployment.signals import report_received
from helixweb.inventory.models import Coordinator, Node, NodeState, lost_after
from helixweb.inventory.services.checkpoint_reading import record_looks
from helixweb.inventory.services.measured_links import LinkOrders, link_orders
from helixweb.inventory.services.presence import record_all_seen, record_left, record_seen
from helixweb.inventory.services.reachability import keep_reach
from runtime.protocol.control import CoordinatorReport, Heartbeat, ObservedState, StageStats
from runtime.protocol.phases import Phase

MESSAGE_LENGTH = 2000
# Columns of an assignment that a heartbeat is compared with.
_READ = (
    "node", "node_name", "instances", "observed_instances", "observed_generation", "phase",
    "message", "loaded_ratio", "deployment__generation", "deployment__cluster",
)  # fmt: skip
# What a heartbeat without changes updates, if the row is in the phase that it reports.
_UPDATE = """
    UPDATE deployment_nodeassignment
    SET stats = %s, weights = %s, observed_instances = %s, updated_at = %s
    WHERE id = %s AND observed_generation = %s AND phase = %s
"""
_VALUES = (
    "stats", "weights", "observed_instances", "updated_at", "id", "observed_generation", "phase",
)  # fmt: skip


# Fields of a report that a deployment's status and page depend on; they seldom change.
_STANDING = (
    "generation",
    "serving",
    "message",
    "refused_generation",
    "coming_generation",
    "lost_nodes",
    "paused",
)


class Heartbeats:
    """Heartbeats of nodes that are answered together; `write` stores what `record` deferred."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = list(nodes)
        self._heard: set[int] = set()
        self._observed: dict[int, dict[str, Any]] = {}
        self._reached: list[Node] = []
        self._unsettled: set[int] = set()
        self._back: set[int] = set()
        self._orders: dict[int, LinkOrders] = {}

    def record(self, node: Node, heartbeat: Heartbeat, *, now: datetime) -> int:
        """Store the agent's report; returns the generation it must be at.

        A report on any other generation than the present one is outdated and ignored.
        """
        observed = heartbeat.observed
        generation, assignment = self._standing[node.pk]
        entered, was_online = False, node.state_at(now) is NodeState.ONLINE
        if self._is_news(node, heartbeat):
            self._heard.discard(node.pk)
            with transaction.atomic():
                (record_left if heartbeat.leaving else record_seen)(node, now)
                record_looks(node, heartbeat.looked)
                generation, assignment = _standing_of([node])[node.pk]
                if assignment is not None and observed.generation == generation:
                    entered = _keep(assignment, observed, now=now)
        else:
            self._heard.add(node.pk)
            if assignment is not None and observed.generation == generation:
                self._observed[assignment.pk] = {"id": assignment.pk, **_columns(observed, now=now)}
        if observed.generation == generation and is_empty(observed) and node.pk in self._let_go:
            note_drained(node, now=now)
        if assignment is not None and (entered or heartbeat.leaving):
            self._unsettled.add(assignment.deployment_id)
        elif assignment is not None and not was_online:
            self._back.add(assignment.deployment_id)
        return generation

    def is_ordered(self, node: Node) -> bool:
        """True if there is an open order to measure it."""
        return node.pk in self._ordered

    def keep_reach(self, process: Node | Coordinator) -> None:
        """Store its `reach`; deferred to `write` for nodes whose heartbeat changed nothing else."""
        if isinstance(process, Node) and process.pk in self._heard:
            self._reached.append(process)
        else:
            keep_reach(process)

    def link_orders(self, cluster_id: int) -> LinkOrders:
        """Orders to measure links, read once for all nodes of the cluster."""
        if cluster_id not in self._orders:
            self._orders[cluster_id] = link_orders(cluster_id, now=timezone.now())
        return self._orders[cluster_id]

    def write(self, *, now: datetime) -> None:
        """Store what was deferred. Skips locked rows, which the next heartbeat updates."""
        if self._heard:
            values = self._values()
            with transaction.atomic():
                free = record_all_seen(self._heard, now)
                reached = [node for node in self._reached if node.pk in free]
                Node.unscoped.bulk_update(reached, ["reach"], batch_size=100)
                _write_observed(values)
        # Committed above, so of the two last nodes the second to settle sees both. Settling reads
        # all nodes: while others are silent, the worker does it, every two seconds.
        back = {pk for pk in self._back if not _has_silent(pk, now=now)}
        for deployment in sorted(self._unsettled | back):
            settle(deployment, now=now)

    def _values(self) -> dict[int, list[Any]]:
        """Parameters of `_UPDATE`, by row id."""
        fields: list[Any] = [NodeAssignment._meta.get_field(name) for name in _VALUES]
        return {
            pk: [field.get_db_prep_save(row[field.name], connection) for field in fields]
            for pk, row in self._observed.items()
        }

    @cached_property
    def _standing(self) -> dict[int, tuple[int, NodeAssignment | None]]:
        return _standing_of(self._nodes)

    @cached_property
    def _let_go(self) -> frozenset[int]:
        """Nodes that were ordered to hold nothing and have not confirmed it."""
        rows = Drain.unscoped.filter(let_go_at__isnull=False, drained_at__isnull=True)
        return frozenset(rows.filter(node__in=self._nodes).values_list("node", flat=True))

    @cached_property
    def _ordered(self) -> frozenset[int]:
        rows = Profiling.unscoped.filter(state__in=STANDING, node__in=self._nodes)
        return frozenset(rows.order_by().values_list("node", flat=True))

    def _is_news(self, node: Node, heartbeat: Heartbeat) -> bool:
        """True if the heartbeat changes more than `_UPDATE`. Most do not: so hundreds of nodes that
        report at once block a database with one writer for less time."""
        if heartbeat.leaving or heartbeat.looked:
            return True
        generation, assignment = self._standing[node.pk]
        if assignment is None or heartbeat.observed.generation != generation:
            return False
        return any(_news_of(assignment, heartbeat.observed))


def _standing_of(nodes: Sequence[Node]) -> dict[int, tuple[int, NodeAssignment | None]]:
    """By node id: the generation that its cluster's processes must be at, and its assignment."""
    newest = Deployment.unscoped.filter(cluster=OuterRef("deployment__cluster"))
    rows = (
        NodeAssignment.unscoped.filter(node__in=nodes, deployment__cluster=F("node__cluster"))
        .annotate(newest=Subquery(newest.order_by("-generation").values("generation")[:1]))
        .filter(deployment__generation=F("newest"))
        .select_related("deployment")
        .only(*_READ)
        .order_by()
    )
    found = {row.node_id: (row.deployment.generation, row) for row in rows}
    others = {node.cluster_id for node in nodes if node.pk not in found}
    generations = {cluster: current_generation(cluster) for cluster in others}
    return {node.pk: found.get(node.pk) or (generations[node.cluster_id], None) for node in nodes}


def _write_observed(values: Mapping[int, list[Any]]) -> None:
    rows = NodeAssignment.unscoped.filter(pk__in=values).order_by()
    free = rows.select_for_update(no_key=True, skip_locked=True)
    with connection.cursor() as cursor:
        cursor.executemany(_UPDATE, [values[pk] for pk in free.values_list("pk", flat=True)])


def _has_silent(deployment_id: int, *, now: datetime) -> bool:
    rows = NodeAssignment.unscoped.filter(deployment=deployment_id)
    return rows.filter(node__last_seen_at__lt=now - lost_after()).exists()


def _keep(assignment: NodeAssignment, observed: ObservedState, *, now: datetime) -> bool:
    """Write what is observed of the present generation; returns whether the phase is another."""
    entered, progressed, moved = _news_of(assignment, observed)
    columns = _columns(observed, now=now)
    NodeAssignment.unscoped.filter(pk=assignment.pk).update(**columns)
    reported = {name: columns[name] for name in ("phase", "message")}
    if moved and assignment.instances:
        wake_coordinators(assignment.deployment.cluster_id)
    if entered:
        PhaseChange.objects.create(assignment=assignment, at=now, **reported)
    if entered or progressed:
        events.emit(
            assignment.deployment.topic,
            "node-phase",
            {
                "deployment": assignment.deployment_id,
                "node": assignment.node_name,
                **reported,
                "loaded_ratio": observed.loaded_ratio,
            },
        )
    return entered


def _columns(observed: ObservedState, *, now: datetime) -> dict[str, Any]:
    return {
        "observed_generation": observed.generation,
        "phase": observed.phase.value,
        "message": observed.message[:MESSAGE_LENGTH],
        "loaded_ratio": observed.loaded_ratio,
        "stats": observed.stage.model_dump(mode="json") if observed.stage else None,
        "weights": observed.weights.model_dump(mode="json") if observed.weights else {},
        "observed_instances": _instances(observed),
        "updated_at": now,
    }


def _news_of(assignment: NodeAssignment, observed: ObservedState) -> tuple[bool, bool, bool]:
    """Three flags: whether the phase, its shown details, or the instances' endpoints changed."""
    phase, message = observed.phase.value, observed.message[:MESSAGE_LENGTH]
    shown = assignment.message, assignment.loaded_ratio
    return (
        (assignment.observed_generation, assignment.phase) != (observed.generation, phase),
        shown != (message, observed.loaded_ratio),
        _doors(_instances(observed)) != _doors(assignment.observed_instances),
    )


def _instances(observed: ObservedState) -> list[dict[str, Any]]:
    return [one.model_dump(mode="json") for one in observed.instances]


def _doors(instances: list[dict[str, Any]]) -> dict[str, tuple[int | None, str]]:
    """Port and certificate of each instance, by name."""
    return {one["name"]: (one["port"], one.get("certificate", "")) for one in instances}


def record_report(coordinator: Coordinator, report: CoordinatorReport, *, now: datetime) -> int:
    """Store the newest report, and notify what makes metrics of the reports of all coordinators.

    Returns the generation that the coordinator must be at. What changes the status of a deployment,
    such as a lost stage, is concluded at once and pushed to its page.
    """
    document = report.model_dump(mode="json", exclude={"traces", "reach"})
    with transaction.atomic():
        before = LatestReport.unscoped.filter(coordinator=coordinator).first()
        is_news = (
            before is None
            or any(before.says(field) != document[field] for field in _STANDING)
            or _open(before.says("instances")) != _open(document["instances"])
        )
        record_seen(coordinator, now)
        book_spending(coordinator, report, before, now=now)
        LatestReport.unscoped.update_or_create(
            coordinator=coordinator, defaults={"report": document, "at": now}
        )
        joint = with_others(coordinator, report, now=now)
        report_received.send(
            sender=Coordinator,
            cluster_id=coordinator.cluster_id,
            report=joint,
            node_stats=_stage_stats(coordinator.cluster_id),
            at=now,
        )
        follow_change(coordinator.cluster_id, joint, now=now)
        follow_drains(now=now, cluster_id=coordinator.cluster_id)
    if is_news or report.lost_nodes or report.refused_generation is not None:
        serving = Deployment.unscoped.filter(cluster=coordinator.cluster_id, status__in=SERVING)
        for deployment in serving:
            settle(deployment.pk, now=now)
            if is_news:
                nudge_page(deployment)
                repair_after_commit(deployment.pk)
    return current_generation(coordinator.cluster_id)


def _open(instances: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The servers that take requests."""
    return {name for name, one in instances.items() if one["open"]}


def follow_change(cluster_id: int, report: CoordinatorReport, *, now: datetime) -> None:
    """Update from the joint report whether the previous generation has ended; it may serve for a
    while, so open pages of the deployment are notified of every step."""
    rows = Deployment.unscoped.filter(
        cluster=cluster_id,
        generation=report.generation,
        status__in=SERVING,
        follows_generation__isnull=False,
        took_over_at__isnull=True,
    )
    deployment = rows.first()
    if deployment is None:
        return
    if not has_taken_over(report):
        nudge_page(deployment)
    elif rows.filter(pk=deployment.pk).update(took_over_at=now):
        # Nodes without layers now may hold some of what ran before.
        nodes = Node.unscoped.filter(cluster=cluster_id, joined_at__isnull=False)
        wake(*nodes.exclude(assignments__deployment=deployment).only("pk"))
        said = gettext_noop("%(name)s has taken over: nothing is left of what ran before.")
        announce(deployment, said, name=deployment.model_name)


def has_taken_over(report: CoordinatorReport) -> bool:
    """True if its generation serves, and no stage reports the one before."""
    if report.refused_generation == report.generation:
        return False
    return report.serving and report.coming_generation is None and report.leaving_generation is None


def _stage_stats(cluster_id: int) -> dict[str, StageStats]:
    rows = NodeAssignment.unscoped.filter(
        deployment__cluster=cluster_id,
        deployment__status__in=SERVING,
        phase=Phase.READY.value,
        stats__isnull=False,
    )
    return {
        name: StageStats.model_validate(stats)
        for name, stats in rows.values_list("node_name", "stats")
    }
