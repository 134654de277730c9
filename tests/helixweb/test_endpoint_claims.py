"""Endpoints and keys of others that a node's credential claims."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster, Coordinator, Node
from helixweb.inventory.services import joining
from tests.helixweb.looking import answered, contains
from tests.helixweb.process_doubles import FakeAgent, FakeCoordinator

pytestmark = pytest.mark.django_db
ELSEWHERE = "203.0.113.9"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.objects.create(name="lab")


@pytest.fixture
def user() -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def victim(cluster: Cluster, user: User) -> FakeAgent:
    return FakeAgent(cluster, "victim", user, port=7001)


@pytest.fixture
def mini(cluster: Cluster, user: User) -> FakeAgent:
    return FakeAgent(cluster, "mini", user, port=7002)


def announced(agent: FakeAgent, *, address: str = "127.0.0.1", **said: Any) -> tuple[int, str]:
    """Status and detail of what the site answers; the row keeps what it had if it is refused."""
    before = agent.row.data_endpoint, agent.row.data_public_key
    answer = agent.http.put(
        "/api/v1/agent/identity", {**agent.identity, **said}, REMOTE_ADDR=address
    )
    if answer.status_code != 204:
        assert (agent.row.data_endpoint, agent.row.data_public_key) == before
        return answer.status_code, str(answer.json())
    return answer.status_code, ""


@pytest.mark.parametrize(
    "endpoint", ["tcp://127.0.0.1:8660/x y\r\nfoo", "ipc:///etc/passwd", "tcp://10.0.0.7:0"]
)
def test_an_invalid_endpoint_is_always_refused(endpoint: str, mini: FakeAgent, user: User) -> None:
    status, detail = announced(mini, data_endpoint=endpoint)
    assert status == 400
    assert "data_endpoint" in detail
    token = joining.create_join_token(mini.row.cluster, "node", user).secret
    new = mini.registration(token) | {"node_uuid": "7" * 32, "name": "new"}
    new["data_endpoint"] = endpoint
    refused = answered(APIClient().post("/api/v1/agent/register", new), 400)
    assert "data_endpoint" in str(refused.json())
    assert not Node.unscoped.filter(name="new").exists()


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:7001", "tcp://localhost:7001"])
def test_a_used_endpoint_is_not_claimed(endpoint: str, mini: FakeAgent, victim: FakeAgent) -> None:
    status, detail = announced(mini, data_endpoint=endpoint)
    assert status == 403
    assert "is that of 'victim'" in detail
    Node.unscoped.filter(name="victim").update(last_seen_at="2020-01-01T00:00:00Z")
    assert announced(mini, data_endpoint=endpoint) == (204, "")


def test_a_node_cannot_claim_the_key_of_another(mini: FakeAgent, victim: FakeAgent) -> None:
    """Peers would take what that one sends for this one's."""
    Node.unscoped.filter(name="victim").update(last_seen_at="2020-01-01T00:00:00Z")
    status, detail = announced(mini, data_public_key=victim.identity["data_public_key"])
    assert status == 403
    assert "key of 'mini' is that of 'victim'" in detail


def test_a_node_cannot_claim_where_the_site_or_a_coordinator_answers(
    mini: FakeAgent, cluster: Cluster, user: User, settings: Any
) -> None:
    settings.HELIX_URL = "http://127.0.0.1:8000"
    FakeCoordinator(cluster, user, port=7003)
    Coordinator.unscoped.update(http_url="http://10.0.0.9:8100")
    for endpoint in ("tcp://127.0.0.1:8000", "tcp://10.0.0.9:8100", "tcp://127.0.0.1:7003"):
        status, detail = announced(mini, data_endpoint=endpoint)
        assert status == 403
        assert endpoint in detail


def test_a_node_elsewhere_cannot_lead_its_peers_to_their_own_machines(mini: FakeAgent) -> None:
    status, detail = announced(mini, address=ELSEWHERE)
    assert status == 403
    contains(detail, "loopback", "--data-host")
    there = {"data_endpoint": "tcp://198.51.100.7:7002"}  # behind NAT it is another address
    assert announced(mini, address=ELSEWHERE, **there) == (204, "")


def test_one_machine_elsewhere_uses_loopback(mini: FakeAgent, cluster: Cluster, user: User) -> None:
    FakeCoordinator(cluster, user, port=7003)
    assert announced(mini, address=ELSEWHERE) == (204, "")
