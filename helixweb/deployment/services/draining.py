"""Drains a node on a user's request: first no requests, then no layers; and ends the drain.

Coordinators route requests around it; where there is no other route, `repairing` places its layers
on other nodes. Level-triggered by reports, heartbeats and beat.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common.refusals import Conflict
from helixweb.deployment.announcing import nudge_page, wake, wake_coordinators
from helixweb.deployment.coordinators import is_online, reports_on, told_by
from helixweb.deployment.models import Deployment, Drain
from helixweb.inventory.models import Node
from helixweb.inventory.services.joining import note
from runtime.protocol.control import DrainProgress, ObservedState
from runtime.protocol.phases import Phase

_LETS_GO = gettext_noop("No request is left on node %(name)s; it lets go of its layers.")


def drain(node: Node, *, user: Any, now: datetime) -> Drain:
    """Have requests leave the node, then its layers. Raises Conflict when it has not joined, or is
    being drained already."""
    if node.joined_at is None:
        raise Conflict(
            _("Node %(name)s has not joined, so that it holds nothing; delete it if it never will.")
            % {"name": node.name}
        )
    with transaction.atomic():
        row, is_new = Drain.unscoped.get_or_create(
            node=node, defaults={"began_at": now, "created_by": user}
        )
        if not is_new:
            raise Conflict(
                _("Node %(name)s is being drained already; take it in again to undo that.")
                % {"name": node.name}
            )
        said = gettext_noop("%(user)s drains node %(name)s.")
        note(node, said, now=now, text="drained", user=str(user))
        wake_coordinators(node.cluster_id)
    return row


def take_in(row: Drain, *, user: Any, now: datetime) -> None:
    """Undo a drain: the node holds its layers again, if the deployment gives it some."""
    with transaction.atomic():
        node = row.node
        if not Drain.unscoped.filter(pk=row.pk).delete()[0]:
            return
        said = gettext_noop("%(user)s takes node %(name)s in again.")
        note(node, said, now=now, text="taken in again", user=str(user))
        wake_coordinators(node.cluster_id)
        wake(node)


def follow_drains(*, now: datetime, cluster_id: int | None = None) -> None:
    """Note how far drains are, of one cluster or of all; ask free nodes to hold nothing."""
    rows = Drain.unscoped.filter(let_go_at__isnull=True).select_related("node")
    if cluster_id is not None:
        rows = rows.filter(node__cluster=cluster_id)
    for row in rows:
        _follow(row, now=now)


def is_empty(observed: ObservedState) -> bool:
    """True if the node holds nothing."""
    return observed.phase is Phase.IDLE and not observed.also_serving and observed.stage is None


def note_drained(node: Node, *, now: datetime) -> None:
    """Store that the node holds nothing, as ordered."""
    with transaction.atomic():
        let_go = Drain.unscoped.filter(node=node, let_go_at__isnull=False, drained_at__isnull=True)
        if let_go.update(drained_at=now):
            note(node, gettext_noop("Node %(name)s is drained: it holds nothing."), now=now)


def draining_names(cluster_id: int) -> tuple[str, ...]:
    """Nodes of the cluster that are drained or on the way there, in order."""
    names = Drain.unscoped.filter(node__cluster=cluster_id).values_list("node__name", flat=True)
    return tuple(sorted(names))


def is_let_go(node: Node | None) -> bool:
    """True if it must hold nothing, even if the deployment gives it layers."""
    drain: Drain | None = getattr(node, "drain", None)
    return drain is not None and drain.let_go_at is not None


def is_held_up(cluster_id: int, names: Iterable[str]) -> bool:
    """True if one of these is to be drained and no way leads around it."""
    held_up = Drain.unscoped.filter(node__cluster=cluster_id, needed=True, let_go_at__isnull=True)
    return held_up.filter(node__name__in=list(names)).exists()


def _follow(row: Drain, *, now: datetime) -> None:
    """Update a drain from online coordinators' reports on the deployment's current generation."""
    node, deployment = row.node, Deployment.serving(row.node.cluster_id)
    is_placed = (
        deployment is not None and deployment.assignments.filter(node_name=node.name).exists()
    )
    progress: list[DrainProgress] | None = []
    if deployment is not None and (is_placed or deployment.is_changing):
        progress = _reported(row, deployment, now=now)
    requests = None if progress is None else sum(each.requests for each in progress)
    needed = any(each.needed for each in progress or ())
    is_free = progress == [] or (is_placed and requests == 0 and not needed)
    with transaction.atomic():
        same = Drain.unscoped.filter(pk=row.pk, let_go_at__isnull=True)
        if is_free:
            if same.update(let_go_at=now, requests=0, needed=False):
                wake(node)
                note(node, _LETS_GO, now=now)
        elif (row.requests, row.needed) != (requests, needed):
            same.update(requests=requests, needed=needed)
            if deployment is not None:
                nudge_page(deployment)


def _reported(row: Drain, deployment: Deployment, *, now: datetime) -> list[DrainProgress] | None:
    """Each coordinator's progress; None while one has not reported it, or none is online."""
    online = [one for one in told_by(deployment) if is_online(one, now=now)]
    found = [
        report.says("draining")[row.node.name]
        for report in reports_on(deployment, online_at=now)
        if report.at > row.began_at and row.node.name in report.says("draining")
    ]
    is_told = online and len(found) == len(online)
    return [DrainProgress.model_validate(one) for one in found] if is_told else None
