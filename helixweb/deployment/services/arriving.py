"""Processes that join, or come back and say where they listen now."""

from datetime import datetime

from django.db import transaction

from helixweb.deployment.services.deploying import follow_addresses
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.joining import register
from helixweb.inventory.services.presence import update_identity
from runtime.protocol.control import AgentIdentity, RegisterReply, RegisterRequest


def admit(request: RegisterRequest, *, now: datetime, from_this_machine: bool) -> RegisterReply:
    """Register a process; if it served before and moved, what is deployed follows.

    Raises what inventory's `register` raises.
    """
    with transaction.atomic():
        registration = register(request, now, from_this_machine=from_this_machine)
        follow_addresses(registration.row.cluster, now=now)
    return registration.reply


def take_identity(
    process: Node | Coordinator,
    identity: AgentIdentity,
    *,
    now: datetime,
    from_this_machine: bool,
) -> None:
    """Note what a restarted process says of itself, and have its deployment follow."""
    with transaction.atomic():
        row = update_identity(process, identity, now, from_this_machine=from_this_machine)
        follow_addresses(row.cluster, now=now)
