"""How a machine becomes part of a cluster: a one-time token, then a credential of its own."""

import secrets
import shlex
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.auth import sha256_hex
from helixweb.common.sentences import sentence
from helixweb.inventory.models import (
    VERSION_LENGTH,
    Change,
    Cluster,
    Coordinator,
    JoinToken,
    Node,
)
from helixweb.inventory.services.change_log import record
from helixweb.inventory.services.errors import JoinRefused, NameTaken
from runtime.protocol.control import RegisterReply, RegisterRequest, Role
from runtime.protocol.coordinators import free_name

TOKEN_VALID_FOR = timedelta(hours=1)
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


class NewJoinToken(NamedTuple):
    """`secret` is shown once and never stored."""

    row: JoinToken
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What is answered, and the row the process now stands for."""

    reply: RegisterReply
    row: Node | Coordinator


def create_join_token(cluster: Cluster, role: str, user: Any) -> NewJoinToken:
    """A token `hlxj_…` that admits one process of that role within the hour."""
    secret = f"hlxj_{secrets.token_urlsafe(30)}"
    row = JoinToken.objects.create(
        cluster=cluster,
        role=JoinToken.Role(role),
        token_hash=sha256_hex(secret),
        created_by=user,
        expires_at=timezone.now() + TOKEN_VALID_FOR,
    )
    record(row, Change.Action.ADDED)
    return NewJoinToken(row, secret)


def revoke_join_token(token_id: int, *, now: datetime) -> bool:
    """Let it expire at once; False when it admitted somebody or had expired before."""
    unused = JoinToken.objects.filter(pk=token_id, used_at__isnull=True, expires_at__gt=now)
    with transaction.atomic():
        row = unused.select_related("cluster").first()
        if row is None or not unused.update(expires_at=now):
            return False
        record(row, Change.Action.REMOVED, text="revoked")
    return True


def join_command(role: str, secret: str, *, name: str = "NAME", region: str = "") -> str:
    """What to run on the machine; shared by the page and the REST API."""
    if role == JoinToken.Role.NODE:
        words = ["helix-agent", "join", settings.HELIX_URL]
    else:
        words = ["python", "-m", "runtime", "coordinator", "--server", settings.HELIX_URL]
    words += ["--token", secret, "--name", name]
    if region and role == JoinToken.Role.NODE:
        words += ["--region", region]
    # The tilde must stay outside quotes to mean the home folder.
    return f"{shlex.join(words)} --data-dir ~/.helixweb/{shlex.quote(name)}"


def command_works_elsewhere() -> bool:
    """Whether a machine other than this one reaches the site at the address in the command."""
    return urlsplit(settings.HELIX_URL).hostname not in ("127.0.0.1", "localhost", "::1")


def register(request: RegisterRequest, now: datetime) -> Registration:
    """Admit a process and give it a credential.

    A declared node of that name is adopted and keeps its region; a known uuid is updated. A token
    is used up only by success. Raises TokenUnknown, TokenUsed, TokenExpired,
    TokenForAnotherRole, NameTaken, JoinRefused.
    """
    credential = f"hlxn_{secrets.token_urlsafe(32)}"
    identity = {
        "credential_hash": sha256_hex(credential),
        "data_endpoint": request.data_endpoint,
        "data_public_key": request.data_public_key,
        "version": request.version[:VERSION_LENGTH],
        "joined_at": now,
        "last_seen_at": now,
        "silence_announced": False,
    }
    fresh: Node | Coordinator
    if request.role is Role.NODE:
        identity["hardware"] = request.hardware.model_dump(mode="json")
        fresh = Node(name=request.name, region=request.region)
    else:
        identity["http_url"] = request.http_url
        fresh = Coordinator(name=request.name)
    fresh.uuid = _uuid(request.node_uuid)
    for name, value in identity.items():
        setattr(fresh, name, value)
    check_fields(fresh)
    try:
        with transaction.atomic():
            fresh.cluster = cluster = _use_token(request, now)
            row = (
                _admit_node(fresh, identity)
                if isinstance(fresh, Node)
                else _admit_coordinator(fresh, identity)
            )
            announce(row, now=now, said=sentence(_JOINED[type(row)], name=row.name))
            record(row, Change.Action.NOTED, text="joined")
    except IntegrityError as error:  # another machine took the name between look-up and insert
        raise _name_taken(request.name, "another machine") from error
    return Registration(
        reply=RegisterReply(
            name=row.name,
            cluster=cluster.name,
            credential=credential,
            heartbeat_interval_s=settings.HELIX_HEARTBEAT_INTERVAL_S,
        ),
        row=row,
    )


def announce(row: Node | Coordinator, *, now: datetime, said: Mapping[str, Any]) -> None:
    """Tell open pages how the process is; `said` is a `sentence`."""
    kind = "node" if isinstance(row, Node) else "coordinator"
    events.emit(
        f"cluster:{row.cluster_id}",
        "node",
        {kind: row.pk, "name": row.name, "state": row.state_at(now), **said},
    )


def check_fields(row: Node | Coordinator) -> None:
    """What a process says of itself must fit the row. Raises JoinRefused."""
    try:
        row.clean_fields(exclude=["cluster"])
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise JoinRefused(
            f"{field} {str(getattr(row, field))[:80]!r} is refused: {messages[0]}"
        ) from None


def _use_token(request: RegisterRequest, now: datetime) -> Cluster:
    """Spend the token by compare-and-set, so that of two that race one wins."""
    token = (
        JoinToken.objects.select_related("cluster")
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
    unused = JoinToken.objects.filter(pk=token.pk, used_at__isnull=True)
    if unused.filter(expires_at__gt=now).update(used_at=now, used_by_name=request.name):
        return token.cluster
    if unused.exists():
        raise TokenExpired(
            f"The join token {shown} expired at {token.expires_at:%Y-%m-%d %H:%M} UTC; "
            f"{FRESH_COMMAND}."
        )
    token.refresh_from_db()
    raise TokenUsed(
        f"The join token {shown} was used already, by {token.used_by_name!r}; each token admits "
        f"one process: {FRESH_COMMAND}."
    )


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise JoinRefused(
            f"node_uuid {text!r} is not a UUID; delete the agent's data directory and join again."
        ) from None


def _name_taken(name: str, holder: str) -> NameTaken:
    return NameTaken(
        f"The name {name!r} belongs to {holder} in this cluster; join with another --name, or "
        "delete that row on the cluster's page first."
    )


def _admit_node(fresh: Node, identity: dict[str, Any]) -> Node:
    """The node's row: updated when its uuid is known, adopted when declared, else `fresh`."""
    known = Node.objects.select_related("cluster").filter(uuid=fresh.uuid).first()
    if known is not None:
        _check_same(known, fresh)
        Node.objects.filter(pk=known.pk).update(**identity)
    else:
        declared = Node.objects.filter(cluster=fresh.cluster, name=fresh.name)
        if not declared.exists():
            fresh.save()
            return fresh
        if not declared.filter(uuid__isnull=True).update(uuid=fresh.uuid, **identity):
            raise _name_taken(fresh.name, "another machine")
    return Node.objects.get(uuid=fresh.uuid)


def _admit_coordinator(fresh: Coordinator, identity: dict[str, Any]) -> Coordinator:
    """The coordinator's row: updated when its uuid is known, else `fresh`."""
    known = Coordinator.objects.select_related("cluster").filter(uuid=fresh.uuid).first()
    if known is not None:
        _check_same(known, fresh)
        Coordinator.objects.filter(pk=known.pk).update(**identity)
        return Coordinator.objects.get(pk=known.pk)
    others = Coordinator.objects.filter(cluster=fresh.cluster)
    if others.filter(name=fresh.name).exists():
        raise NameTaken(
            f"Cluster {fresh.cluster.name!r} has a coordinator {fresh.name!r} already; join with "
            "another --name, restart that one with its own --data-dir, or remove it on the "
            "cluster's page first."
        )
    fresh.peer = free_name(others.values_list("peer", flat=True))
    fresh.save()
    return fresh


def _check_same(known: Node | Coordinator, fresh: Node | Coordinator) -> None:
    """A machine keeps its cluster and its name, since plans refer to it by name."""
    if known.cluster_id != fresh.cluster_id or known.name != fresh.name:
        raise NameTaken(
            f"This machine is {known.name!r} of cluster {known.cluster.name!r} already; join under "
            "that name there, or use another --data-dir to join as a new machine."
        )
