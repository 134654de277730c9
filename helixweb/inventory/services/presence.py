"""Presence of agents and coordinators: credentials, heartbeats, and events when one is lost."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.auth import sha256_hex
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Change, Coordinator, Node, NodeState
from helixweb.inventory.services.change_log import record, values_of
from helixweb.inventory.services.endpoint_claims import KINDS, check_claims
from helixweb.inventory.services.errors import JoinRefused
from helixweb.inventory.services.joining import announce, note, note_all, said_of
from helixweb.inventory.services.problems import check_columns
from runtime.protocol.control import AgentIdentity

TOLD_TO_END = "told to end"
_BACK = gettext_noop("%(name)s is online again.")


def authenticate_agent(bearer: str) -> Node | Coordinator | None:
    """The process with this credential `hlxn_…`; None: unknown."""
    return authenticate_agents([bearer]).get(bearer)


def authenticate_agents(bearers: Iterable[str]) -> dict[str, Node | Coordinator]:
    """The processes that have one of these credentials, by it."""
    left = {sha256_hex(bearer): bearer for bearer in bearers if bearer.startswith("hlxn_")}
    found: dict[str, Node | Coordinator] = {}
    for kind in KINDS:
        if left:
            for row in kind.unscoped.filter(credential_hash__in=left):
                found[left.pop(row.credential_hash)] = row
    return found


def record_seen(process: Node | Coordinator, now: datetime) -> None:
    """Note a sign of life; pages hear of it only when the process was not online before."""
    rows = type(process).unscoped.filter(pk=process.pk)
    is_online = process.state_at(now) is NodeState.ONLINE  # nearly always, so by one statement
    if is_online and rows.filter(silence_announced=False).update(last_seen_at=now):
        process.last_seen_at = now
        return
    with transaction.atomic():
        row = rows.select_for_update(no_key=True).first()
        if row is None:
            return
        before = row.state_at(now)
        rows.update(last_seen_at=now, silence_announced=False)
        process.last_seen_at = row.last_seen_at = now
        if before is not NodeState.ONLINE:
            note(row, _BACK, now=now, text="online again")


def record_all_seen(nodes: Collection[int], now: datetime) -> frozenset[int]:
    """Store that these nodes were heard; call it in a transaction. Skips nodes whose rows are
    locked (the next heartbeat counts). Returns ids of the others, whose rows are locked now."""
    columns = ("cluster", "name", "joined_at", "last_seen_at")
    rows = Node.unscoped.filter(pk__in=nodes).only(*columns).order_by()
    free = list(rows.select_for_update(no_key=True, skip_locked=True))
    rows = Node.unscoped.filter(pk__in=[row.pk for row in free])
    rows.update(last_seen_at=now, silence_announced=False)
    back = [row for row in free if row.state_at(now) is not NodeState.ONLINE]
    for row in back:
        row.last_seen_at = now
    if back:
        note_all(back, _BACK, now=now, text="online again")
    return frozenset(row.pk for row in free)


def record_left(node: Node, now: datetime) -> None:
    """Mark a node as lost whose agent reports its own shutdown, until it is heard again."""
    with transaction.atomic():
        rows = Node.unscoped.filter(pk=node.pk)
        row = rows.select_for_update(no_key=True).first()
        if row is None:
            return
        row.last_seen_at = now - timedelta(seconds=settings.HELIX_NODE_LOST_AFTER_S + 1)
        rows.update(last_seen_at=row.last_seen_at, silence_announced=True)
        message = gettext_noop("%(name)s goes: its agent was told to end.")
        note(row, message, now=now, text=TOLD_TO_END)


def was_told_to_end(cluster_id: int, names: Iterable[str], *, since: datetime) -> bool:
    """True if the change log has a shutdown report of one of these nodes' agents."""
    nodes = Node.unscoped.filter(cluster=cluster_id, name__in=names).values_list("pk", flat=True)
    said = Change.unscoped.filter(
        kind=Node._meta.model_name, row_id__in=list(nodes), text=TOLD_TO_END, at__gte=since
    )
    return said.exists()


def revoke_credential(process: Node | Coordinator) -> bool:
    """End its open stream, too; False: it had no credential. A process that joins again under the
    same name gets another one, which is also how a credential is replaced."""
    with transaction.atomic():
        rows = type(process).unscoped.filter(pk=process.pk).exclude(credential_hash="")
        if not rows.update(credential_hash=""):
            return False
        message = gettext_noop("The credential of %(name)s was revoked.")
        note(process, message, now=timezone.now(), text="credential revoked")
        events.emit(process.topic, "desired", {})  # its stream reads it again, and ends
    return True


def update_identity(
    process: Node | Coordinator, identity: AgentIdentity, now: datetime, *, from_this_machine: bool
) -> Node | Coordinator:
    """Store what a restarted process says of itself; pages hear of it only when it changed.

    Raises JoinRefused for what no row can hold, and EndpointRefused.
    """
    said = said_of(identity, is_node=isinstance(process, Node))
    with transaction.atomic():
        rows = type(process).unscoped.filter(pk=process.pk)
        row = rows.select_for_update(no_key=True).get()
        before = values_of(row)
        changed = any(getattr(row, key) != value for key, value in said.items())
        for key, value in said.items():
            setattr(row, key, value)
        check_columns(row, JoinRefused)
        check_claims(row, now=now, from_this_machine=from_this_machine)
        rows.update(**said)
        record_seen(row, now)
        row = rows.select_related("cluster").get()
        if changed:
            said = sentence(gettext_noop("%(name)s announced itself anew."), name=row.name)
            announce(row, now=now, said=said)
            text, after = "announced itself anew", values_of(row)
            record(row, Change.Action.CHANGED, before=before, after=after, text=text)
    return row


def announce_silent(now: datetime) -> int:
    """Announce, once each, the processes that fell silent; returns how many."""
    silent_since = now - timedelta(seconds=settings.HELIX_NODE_LOST_AFTER_S)
    count = 0
    for kind in KINDS:
        silent = kind.unscoped.filter(last_seen_at__lt=silent_since, silence_announced=False)
        if not silent.exists():
            continue
        with transaction.atomic():
            rows: list[Any] = list(silent.select_for_update(no_key=True, skip_locked=True))
            kind.unscoped.filter(pk__in=[row.pk for row in rows]).update(silence_announced=True)
            note_all(rows, gettext_noop("%(name)s fell silent."), now=now, text="fell silent")
        count += len(rows)
    return count
