"""Heartbeats that arrive at about the same time are answered together, each as if it were alone."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.cache import cache
from django.db import OperationalError, connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helixweb.common.models import Event
from helixweb.common.rest.handler import HEARTBEAT, Application
from helixweb.deployment.models import NodeAssignment, Status
from helixweb.deployment.process_api import HeartbeatView
from helixweb.deployment.services.observing import Heartbeats
from helixweb.deployment.tasks import tend_deployments
from helixweb.inventory.models import Change, Node
from helixweb.inventory.services import presence
from runtime.protocol.control import Heartbeat, ObservedState
from runtime.protocol.phases import Phase
from runtime.protocol.reach import Reach
from tests.helixweb.process_doubles import STATS, FakeCluster, FakeProcess, served
from tests.helixweb.test_unread_bodies import asked, closing, scope_of

pytestmark = pytest.mark.django_db(transaction=True)


def credential_of(process: FakeProcess) -> str:
    sent: str = process.http._credentials["HTTP_AUTHORIZATION"]
    return sent.removeprefix("Bearer ")


def body(reach: Reach | None = None, **observed: Any) -> bytes:
    stage = STATS.model_copy(update={"steps_total": 4711})
    fields = {"generation": 1, "phase": Phase.READY, "stage": stage, **observed}
    return Heartbeat(observed=ObservedState(**fields), reach=reach).model_dump_json().encode()


@pytest.fixture
def send(joined: FakeCluster) -> Any:
    """Sends heartbeats at once, bodies by credentials; returns the answers."""
    served(joined)
    site = Application()

    @async_to_sync
    async def send(bodies: dict[str, bytes]) -> list[tuple[int, Any]]:
        return await asyncio.gather(
            *(
                asked(site, scope_of(HEARTBEAT, credential, method="POST"), content)
                for credential, content in bodies.items()
            )
        )

    yield send
    closing(site)


def test_each_is_answered_as_if_it_were_alone(
    joined: FakeCluster, send: Callable[[dict[str, bytes]], Any]
) -> None:
    tower, laptop = joined.agents["tower"], joined.agents["laptop"]
    heard_at = tower.row.last_seen_at
    assert heard_at is not None
    Node.unscoped.update(last_seen_at=heard_at - timedelta(seconds=1))
    answers = send(
        {
            credential_of(tower): body(),
            "hlxn_madeup": body(),
            credential_of(joined.agents["mini"]): b"{",
            credential_of(joined.coordinator): body(),
            credential_of(laptop): body(generation=7),
        }
    )
    assert [status for status, _ in answers] == [200, 401, 400, 403, 200]
    assert [answer.get("generation") for _, answer in answers] == [1, None, None, None, 1]
    written = NodeAssignment.unscoped.filter(stats__steps_total=4711)
    assert list(written.values_list("node_name", flat=True)) == ["tower"]
    seen = Node.unscoped.filter(last_seen_at__gte=heard_at).order_by("name")
    assert list(seen.values_list("name", flat=True)) == ["laptop", "tower"]


def test_a_revoked_credential_is_refused_at_once(
    joined: FakeCluster, send: Callable[[dict[str, bytes]], Any]
) -> None:
    tower, laptop = joined.agents["tower"], joined.agents["laptop"]
    bodies = {credential_of(tower): body(), credential_of(laptop): body()}
    assert [status for status, _ in send(bodies)] == [200, 200]
    presence.revoke_credential(tower.row)
    assert [status for status, _ in send(bodies)] == [401, 200]


def test_a_heartbeat_that_is_not_stored_is_not_answered_as_if_it_were(
    joined: FakeCluster,
    send: Callable[[dict[str, bytes]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(self: Heartbeats, **_given: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(Heartbeats, "write", write)
    bodies = {credential_of(agent): body() for agent in joined.agents.values()}
    assert [status for status, _ in send(bodies)] == [503] * len(bodies)


def queries_of(joined: FakeCluster, *names: str, reach: Reach | None = None) -> int:
    """How many answer a heartbeat of each of these nodes."""
    requests = [
        RequestFactory().post(
            HEARTBEAT,
            body(reach=reach),
            content_type="application/json",
            headers={"Authorization": f"Bearer {credential_of(joined.agents[name])}"},
        )
        for name in names
    ]
    with CaptureQueriesContext(connection) as captured, HeartbeatView.together(requests):
        for request in requests:
            answer = HeartbeatView.as_view()(request).render()
            assert json.loads(answer.content)["generation"] == 1
    return len(captured)


def silent_for_a_minute() -> None:
    Node.unscoped.update(last_seen_at=timezone.now() - timedelta(minutes=1), silence_announced=True)


def test_many_cost_no_more_queries_than_one(joined: FakeCluster) -> None:
    served(joined)
    queries_of(joined, "tower", "laptop", "mini")  # what it says first is news
    assert queries_of(joined, "tower", "laptop", "mini") == queries_of(joined, "tower")


def test_many_that_come_back_cost_no_more_queries_than_one(joined: FakeCluster) -> None:
    served(joined)
    queries_of(joined, "tower", "laptop", "mini")
    costs = []
    for names in (("tower",), ("tower", "laptop")):  # mini stays silent
        silent_for_a_minute()
        cache.clear()
        costs.append(queries_of(joined, *names, reach=Reach(tried=f"{len(names)}", listens=True)))
    assert costs[0] == costs[1]
    tried = Node.unscoped.filter(reach__tried="2")
    assert sorted(tried.values_list("name", flat=True)) == ["laptop", "tower"]
    back = Change.unscoped.filter(text="online again")
    assert sorted(back.values_list("name", flat=True)) == ["laptop", "tower", "tower"]
    told = Event.objects.filter(type="node", data__said="%(name)s is online again.")
    assert told.count() == 3


def test_heartbeats_cost_no_more_while_other_nodes_are_lost(joined: FakeCluster) -> None:
    deployment = served(joined)
    queries_of(joined, "tower", "laptop")
    usual = queries_of(joined, "tower", "laptop")
    Node.unscoped.filter(name="mini").update(last_seen_at=timezone.now() - timedelta(minutes=1))
    tend_deployments()
    deployment.refresh_from_db()
    assert deployment.status == Status.DEGRADED
    assert queries_of(joined, "tower", "laptop") == usual
