"""Pages hear when a machine comes, falls silent and returns; not at every heartbeat."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from helixweb.common.models import Event
from helixweb.inventory.models import Cluster, Node, NodeState
from helixweb.inventory.services import joining, presence, records
from helixweb.inventory.tasks import announce_silent_processes
from runtime.protocol.control import Hardware, RegisterRequest, Role

NOW = timezone.now()
LATER = NOW + timedelta(seconds=60)
HARDWARE = Hardware(hostname="h", cpu_count=4, memory_bytes=8_000, memory_budget_bytes=4_000)


def joined(cluster: Cluster, user: Any, *, role: Role, name: str, now: datetime = NOW) -> Any:
    request = RegisterRequest(
        join_token=joining.create_join_token(cluster, role, user).secret,
        role=role,
        node_uuid=str(uuid.uuid4()),
        name=name,
        hardware=HARDWARE,
        data_endpoint=f"tcp://127.0.0.1:{5000 + sum(name.encode())}",
        data_public_key=name.ljust(40, "k"),
    )
    row = joining.register(request, now, from_this_machine=True).row
    Event.objects.all().delete()
    return row


@pytest.fixture
def tower(cluster: Cluster, user: Any) -> Node:
    row = joined(cluster, user, role=Role.NODE, name="tower")
    assert isinstance(row, Node)
    return row


def states() -> list[str]:
    return [event.data["state"] for event in Event.objects.filter(type="node").order_by("pk")]


def test_a_silence_is_announced_once_and_so_is_the_return(tower: Node) -> None:
    assert presence.announce_silent(NOW + timedelta(seconds=9)) == 0
    assert presence.announce_silent(LATER) == 1
    assert presence.announce_silent(LATER) == 0
    assert Node.unscoped.get(pk=tower.pk).state_at(LATER) is NodeState.LOST
    presence.record_seen(tower, LATER)
    presence.record_seen(tower, LATER)
    assert states() == ["lost", "online"]


def test_a_coordinator_is_watched_like_a_node_by_the_beat_task(cluster: Cluster, user: Any) -> None:
    before = timezone.now() - timedelta(minutes=1)
    row = joined(cluster, user, role=Role.COORDINATOR, name="front", now=before)
    announce_silent_processes()
    assert states() == ["lost"]
    assert Event.objects.get().data["coordinator"] == row.pk


def test_a_declared_node_is_never_lost(cluster: Cluster) -> None:
    Event.objects.all().delete()
    assert presence.announce_silent(LATER) == 0
    assert {node.state_at(LATER) for node in cluster.nodes.all()} == {NodeState.DECLARED}


def test_a_sign_of_life_of_a_deleted_node_does_nothing(tower: Node) -> None:
    stale = Node.unscoped.get(pk=tower.pk)
    records.delete(tower)
    presence.record_seen(stale, LATER)
    assert not Node.unscoped.filter(name="tower").exists()
