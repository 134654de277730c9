"""Joining of machines to a cluster: a join token, then a credential of their own."""

import itertools
import secrets
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.auth import sha256_hex
from helixweb.common.sentences import sentence
from helixweb.inventory.columns import NAME_LENGTH, VERSION_LENGTH
from helixweb.inventory.models import Change, Cluster, Coordinator, JoinToken, Node
from helixweb.inventory.services.change_log import change_of, record, record_all
from helixweb.inventory.services.endpoint_claims import check_claims
from helixweb.inventory.services.errors import JoinRefused, NameTaken
from helixweb.inventory.services.problems import check_columns
from planner import COORDINATOR
from runtime.protocol.control import AgentIdentity, RegisterReply, RegisterRequest, Role
from runtime.protocol.coordinators import free_name
from runtime.protocol.trust import stays_here

TOKEN_VALID_FOR = timedelta(hours=1)
MAX_NODES_OF_A_MACHINE = 16  # that join with one use of a token: at most one per GPU
_JOINED: dict[type[Node] | type[Coordinator], str] = {
    Node: gettext_noop("Node %(name)s joined."),
    Coordinator: gettext_noop("Coordinator %(name)s joined."),
}
FRESH_COMMAND = "copy a fresh join command from the cluster's page"


class TokenUnknown(JoinRefused):
    default_code = "token_unknown"


class TokenUsed(JoinRefused):
    default_code = "token_used"


class TokenExpired(JoinRefused):
    default_code = "token_expired"


class TokenForAnotherRole(JoinRefused):
    default_code = "token_for_another_role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The answer to a registration, and the row of the process."""

    reply: RegisterReply
    row: Node | Coordinator


def create_join_token(cluster: Cluster, role: str, user: Any, *, machines: int = 1) -> JoinToken:
    """A token that admits so many machines in that role within the hour.

    Its `secret` is `hlxj_…`, which is shown this once and never stored.
    """
    secret = f"hlxj_{secrets.token_urlsafe(30)}"
    row = JoinToken.objects.create(
        cluster=cluster,
        role=JoinToken.Role(role),
        token_hash=sha256_hex(secret),
        machines=machines,
        created_by=user,
        expires_at=timezone.now() + TOKEN_VALID_FOR,
    )
    record(row, Change.Action.ADDED)
    row.secret = secret
    return row


def revoke_join_token(token_id: int, *, now: datetime) -> bool:
    """Let it expire at once; False when it had expired before.

    A used one is revoked too: it still admits further nodes of the same machines.
    """
    valid = JoinToken.unscoped.filter(pk=token_id, expires_at__gt=now)
    with transaction.atomic():
        row = valid.select_related("cluster").first()
        if row is None or not valid.update(expires_at=now):
            return False
        record(row, Change.Action.REMOVED, text="revoked")
    return True


def join_command(
    role: str,
    secret: str,
    *,
    name: str = "",
    region: str = "",
    service: bool = False,
    installed: bool = False,
) -> str:
    """The command to run on the machine; used by the page and the REST API.

    Of a node: a line that installs the agent unless it is `installed`, then joins. Without a `name`
    it is called as its host. `service`: it becomes a systemd unit that starts at boot.
    """
    words = ["--token", secret]
    if name:
        words += ["--name", name]
    if role == JoinToken.Role.NODE:
        if region:
            words += ["--region", region]
        if service:
            words += ["--service"]
        if installed:
            return shlex.join(["helix-agent", "join", settings.HELIX_URL, *words])
        script = shlex.quote(f"{settings.HELIX_URL}/join.sh")
        return f"curl -fsSL {script} | sh -s -- {shlex.join(words)}"
    program = ["python", "-m", "runtime", "coordinator", "--server", settings.HELIX_URL]
    # The tilde must stay outside quotes to mean the home folder.
    folder = f"~/.helixweb/{shlex.quote(name or COORDINATOR)}"
    return f"{shlex.join([*program, *words])} --data-dir {folder}"


def command_works_elsewhere() -> bool:
    """Whether a machine other than this one reaches the site at the address in the command."""
    return not stays_here(settings.HELIX_URL)


def register(request: RegisterRequest, now: datetime, *, from_this_machine: bool) -> Registration:
    """Admit a process and give it a credential.

    A declared node of that name is adopted and keeps its region; a known uuid is updated. A token
    is used only by success. Raises TokenUnknown, TokenUsed, TokenExpired,
    TokenForAnotherRole, NameTaken, EndpointRefused, JoinRefused.
    """
    credential = f"hlxn_{secrets.token_urlsafe(32)}"
    is_node = request.role is Role.NODE
    identity = {
        **said_of(request, is_node=is_node),
        "credential_hash": sha256_hex(credential),
        "joined_at": now,
        "last_seen_at": now,
        "silence_announced": False,
    }
    fresh: Node | Coordinator = Coordinator(name=request.name)
    if is_node:
        fresh = Node(name=request.name, region=request.region)
    fresh.uuid = _uuid(request.node_uuid)
    for name, value in identity.items():
        setattr(fresh, name, value)
    check_columns(fresh, JoinRefused)
    try:
        with transaction.atomic():
            token = _open_token(request, now)
            fresh.cluster = cluster = token.cluster
            if request.may_rename:
                fresh.name = _free_name(fresh)
            row = _admitted(fresh, identity)
            check_claims(row, now=now, from_this_machine=from_this_machine)
            note(row, _JOINED[type(row)], now=now, text="joined")
            _use_token(token, request, row.name, now)
    except IntegrityError as error:  # another machine took the name between look-up and insert
        if request.may_rename and _is_taken(fresh):
            return register(request, now, from_this_machine=from_this_machine)
        raise _name_taken(request.name) from error
    return Registration(
        reply=RegisterReply(
            name=row.name,
            cluster=cluster.name,
            credential=credential,
            heartbeat_interval_s=settings.HELIX_HEARTBEAT_INTERVAL_S,
        ),
        row=row,
    )


def said_of(identity: AgentIdentity | RegisterRequest, *, is_node: bool) -> dict[str, Any]:
    """Columns of a row that its process says."""
    said: dict[str, Any] = {
        "data_endpoint": identity.data_endpoint,
        "data_public_key": identity.data_public_key,
        "version": identity.version[:VERSION_LENGTH],
    }
    if is_node:
        return {**said, "hardware": identity.hardware.model_dump(mode="json")}
    return {**said, "http_url": identity.http_url}


def announce(row: Node | Coordinator, *, now: datetime, said: Mapping[str, Any]) -> None:
    """Notify open pages of the process's state; `said` is a `sentence`."""
    events.emit(*_event(row, now=now, said=said))


def note(
    row: Node | Coordinator, message: str, *, now: datetime, text: str = "", **values: str
) -> None:
    """Send the `message`, marked by gettext_noop, to open pages, and log the `text`."""
    announce(row, now=now, said=sentence(message, name=row.name, **values))
    if text:
        record(row, Change.Action.NOTED, text=text)


def note_all(rows: Sequence[Node | Coordinator], message: str, *, now: datetime, text: str) -> None:
    """Note many rows with two statements; see `note`."""
    events.emit_all(_event(row, now=now, said=sentence(message, name=row.name)) for row in rows)
    record_all(change_of(row, Change.Action.NOTED, text=text) for row in rows)


def _event(
    row: Node | Coordinator, *, now: datetime, said: Mapping[str, Any]
) -> tuple[str, str, dict[str, Any]]:
    kind = "node" if isinstance(row, Node) else "coordinator"
    content = {kind: row.pk, "name": row.name, "state": row.state_at(now), **said}
    return f"cluster:{row.cluster_id}", "node", content


def _open_token(request: RegisterRequest, now: datetime) -> JoinToken:
    """The token, locked until the transaction ends so that of machines that race none is too many.

    Raises TokenUnknown, TokenUsed, TokenExpired, TokenForAnotherRole.
    """
    token = (
        JoinToken.unscoped.select_for_update(of=("self",))
        .select_related("cluster")
        .filter(token_hash=sha256_hex(request.join_token))
        .first()
    )
    shown = f"{request.join_token[:10]}…"
    if token is None:
        raise TokenUnknown(f"The join token {shown} is unknown; {FRESH_COMMAND}.")
    if token.role != request.role.value:
        raise TokenForAnotherRole(
            f"The join token {shown} admits a {token.role}, not a {request.role.value}; "
            f"{FRESH_COMMAND} for a {request.role.value}."
        )
    beside = [machine for machine, _name in token.admitted].count(request.machine_uuid)
    if (token.used_at is not None and not beside) or beside >= MAX_NODES_OF_A_MACHINE:
        admits = "one machine" if token.machines == 1 else f"{token.machines} machines"
        admits += f" with up to {MAX_NODES_OF_A_MACHINE} nodes each" if beside else ""
        raise TokenUsed(
            f"The join token {shown} was used already, by {_few(token.names_admitted)}; it admits "
            f"{admits}; {FRESH_COMMAND}."
        )
    if token.expires_at <= now:
        raise TokenExpired(
            f"The join token {shown} expired at {token.expires_at:%Y-%m-%d %H:%M} UTC; "
            f"{FRESH_COMMAND}."
        )
    return token


def _use_token(token: JoinToken, request: RegisterRequest, name: str, now: datetime) -> None:
    """Record the process that joined with a token that this transaction has locked."""
    # REST shows node uuids, so the value stored for one must never equal a machine's uuid.
    machine = request.machine_uuid or f"node {request.node_uuid}"
    token.admitted = [*token.admitted, [machine, name]]
    token.used_by_name = name
    if token.used_at is None and token.machines_admitted >= token.machines:
        token.used_at = now
    token.save(update_fields=["admitted", "used_at", "used_by_name"])
    record(
        token,
        Change.Action.NOTED,
        text=f"admitted {name}: {token.machines_admitted} of {token.machines} machines",
    )


def _few(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:3]))
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _free_name(fresh: Node | Coordinator) -> str:
    """The name it has if it is free, or its own already, else that with the first free number."""
    known = type(fresh)._base_manager.filter(cluster=fresh.cluster, uuid=str(fresh.uuid)).first()
    if known is not None:
        return known.name
    wanted = fresh.name
    for number in itertools.count(2):
        if not _is_taken(fresh):
            return fresh.name
        fresh.name = f"{wanted[: NAME_LENGTH - len(str(number)) - 1]}-{number}"
    raise AssertionError  # the count has no end


def _is_taken(fresh: Node | Coordinator) -> bool:
    """Whether another machine has the name; a node that was only declared may be adopted."""
    rows = type(fresh)._base_manager.filter(cluster=fresh.cluster, name=fresh.name)
    return rows.filter(uuid__isnull=False).exists()


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise JoinRefused(
            f"node_uuid {text!r} is not a UUID; delete the agent's data directory and join again."
        ) from None


def _name_taken(name: str) -> NameTaken:
    return NameTaken(
        f"The name {name!r} belongs to another machine in this cluster; join with another --name, "
        "or delete that row on the cluster's page first."
    )


def _admitted(fresh: Node | Coordinator, identity: dict[str, Any]) -> Node | Coordinator:
    """The process's row: updated if its uuid is known, adopted if it is a declared node, else
    `fresh`."""
    rows: Any = type(fresh)._base_manager
    namesakes = rows.filter(cluster=fresh.cluster, name=fresh.name)
    known = rows.select_related("cluster").filter(uuid=fresh.uuid).first()
    if known is not None:
        _check_same(known, fresh)
        rows.filter(pk=known.pk).update(**identity)
    elif isinstance(fresh, Coordinator):
        if namesakes.exists():
            raise NameTaken(
                f"Cluster {fresh.cluster.name!r} has a coordinator {fresh.name!r} already; join "
                "with another --name, restart that one with its own --data-dir, or remove it on "
                "the cluster's page first."
            )
        others = rows.filter(cluster=fresh.cluster)
        fresh.peer = free_name(others.values_list("peer", flat=True))
        fresh.save()
        return fresh
    elif not namesakes.exists():
        fresh.save()
        return fresh
    elif not namesakes.filter(uuid__isnull=True).update(uuid=fresh.uuid, **identity):
        raise _name_taken(fresh.name)
    row: Node | Coordinator = rows.get(uuid=fresh.uuid)
    return row


def _check_same(known: Node | Coordinator, fresh: Node | Coordinator) -> None:
    """Check that a machine's cluster and name are unchanged, as plans refer to it by name."""
    if known.cluster_id != fresh.cluster_id or known.name != fresh.name:
        raise NameTaken(
            f"This machine is {known.name!r} of cluster {known.cluster.name!r} already; join under "
            "that name there, or use another --data-dir to join as a new machine."
        )
