"""Pages hear when a machine comes, falls silent and returns; not at every heartbeat."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from helixweb.common.models import Event
from helixweb.inventory.models import Cluster, Coordinator, Node, NodeState
from helixweb.inventory.services import joining, presence, records
from helixweb.inventory.tasks import announce_silent_processes
from runtime.protocol.control import AgentIdentity, Hardware, RegisterRequest, Role

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


def test_heartbeats_of_an_online_node_are_no_news(tower: Node) -> None:
    for seconds in (2, 4, 6):
        presence.record_seen(tower, NOW + timedelta(seconds=seconds))
    assert states() == []
    assert Node.unscoped.get(pk=tower.pk).last_seen_at == NOW + timedelta(seconds=6)


def test_a_silence_is_announced_once_and_so_is_the_return(tower: Node) -> None:
    assert presence.announce_silent(NOW + timedelta(seconds=9)) == 0
    assert presence.announce_silent(LATER) == 1
    assert presence.announce_silent(LATER) == 0
    assert Node.unscoped.get(pk=tower.pk).state_at(LATER) is NodeState.LOST
    presence.record_seen(tower, LATER)
    presence.record_seen(tower, LATER)
    assert states() == ["lost", "online"]


def test_a_coordinator_is_watched_like_a_node(cluster: Cluster, user: Any) -> None:
    row = joined(cluster, user, role=Role.COORDINATOR, name="front")
    presence.announce_silent(LATER)
    assert states() == ["lost"]
    assert Event.objects.get().data["coordinator"] == row.pk


def test_the_beat_task_finds_who_is_silent_now(cluster: Cluster, user: Any) -> None:
    joined(cluster, user, role=Role.NODE, name="tower", now=timezone.now() - timedelta(minutes=1))
    announce_silent_processes()
    assert states() == ["lost"]


def test_a_declared_node_is_never_lost(cluster: Cluster) -> None:
    Event.objects.all().delete()
    assert presence.announce_silent(LATER) == 0
    assert {node.state_at(LATER) for node in cluster.nodes.all()} == {NodeState.DECLARED}


def test_a_sign_of_life_of_a_deleted_node_does_nothing(tower: Node) -> None:
    stale = Node.unscoped.get(pk=tower.pk)
    records.delete(tower)
    presence.record_seen(stale, LATER)
    assert not Node.unscoped.filter(name="tower").exists()


def test_an_identity_is_news_only_when_it_changed(tower: Node) -> None:
    identity = AgentIdentity(
        hardware=HARDWARE, data_endpoint="tcp://127.0.0.1:9999", data_public_key="k" * 40
    )
    for _ in range(2):
        row = presence.update_identity(tower, identity, NOW, from_this_machine=True)
    assert row.data_endpoint == "tcp://127.0.0.1:9999"
    assert states() == ["online"]


def test_a_coordinator_says_anew_where_it_is_reached(cluster: Cluster, user: Any) -> None:
    front = joined(cluster, user, role=Role.COORDINATOR, name="front")
    identity = AgentIdentity(
        hardware=HARDWARE,
        data_endpoint="tcp://127.0.0.1:9999",
        data_public_key="p" * 40,
        http_url="http://127.0.0.1:8001",
    )
    presence.update_identity(front, identity, NOW, from_this_machine=True)
    assert Coordinator.unscoped.get().http_url == "http://127.0.0.1:8001"
