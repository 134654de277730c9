"""The operations of agents and coordinators: who may ask, what they report, what they get."""

import asyncio
import json
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common import broadcaster
from helixweb.common.api_keys import create_api_key
from helixweb.common.auth import sha256_hex
from helixweb.common.models import ApiKey, Event
from helixweb.deployment.services import desired
from helixweb.deployment.streams import desired_frames, follow
from helixweb.inventory.models import Cluster, Node
from helixweb.inventory.services import records
from runtime.api.access import ApiKeys
from tests.helixweb.looking import answered
from tests.helixweb.process_doubles import REPORT, FakeAgent, FakeCoordinator
from tests.helixweb.request_traces import made_up_trace
from tests.helixweb.role_table import OPERATIONS
from tests.helixweb.stream_readers import emit, in_thread

OF_PROCESSES = [
    (method.lower(), f"/api/v1/{path.format(model='org/small', revision='site', file='a.json')}")
    for method, path in (name.split() for name, need in OPERATIONS.items() if need == "process")
]


@pytest.mark.parametrize(("method", "path"), OF_PROCESSES)
def test_operations_of_processes_need_their_credentials(user: Any, method: str, path: str) -> None:
    key = create_api_key(name="all", user=user, scopes=["read", "write", "serve"]).secret
    for client, header in (
        (APIClient(), None),
        (APIClient(), "Bearer hlxn_wrong"),
        (APIClient(), f"Bearer {key}"),
    ):
        if header:
            client.credentials(HTTP_AUTHORIZATION=header)
        answer = answered(getattr(client, method)(path, {} if method != "get" else None), 401)
        assert answer["WWW-Authenticate"] == "Bearer"
        assert answer["Content-Type"] == "application/problem+json"


def test_a_credential_is_for_the_operations_of_its_role(cluster: Cluster, user: Any) -> None:
    agent = FakeAgent(cluster, "tower", user, port=7001)
    coordinator = FakeCoordinator(cluster, user)
    for method, path in OF_PROCESSES:
        if path.endswith("/identity") or "/weights/" in path:
            continue  # of both
        other = coordinator if "/agent/" in path else agent
        assert getattr(other.http, method)(path).status_code == 403, path


def test_a_malformed_message_is_answered_with_each_bad_field(cluster: Cluster, user: Any) -> None:
    agent = FakeAgent(cluster, "tower", user, port=7001)
    observed = {"generation": -1, "phase": "asleep", "colour": "red", "loaded_ratio": True}
    answer = answered(agent.http.post("/api/v1/agent/heartbeat", {"observed": observed}), 400)
    errors = {error["field"]: error["message"] for error in answer.json()["errors"]}
    wrong = ("generation", "phase", "colour", "loaded_ratio")
    assert set(errors) == {f"observed.{field}" for field in wrong}
    assert "got -1" in errors["observed.generation"]
    broken = agent.http.post("/api/v1/agent/heartbeat", "{", content_type="application/json")
    assert broken.status_code == 400
    assert "JSON" in broken.json()["detail"]


@pytest.mark.django_db
@pytest.mark.parametrize("size", [1_000_001, 10_000_001])
def test_a_message_that_is_too_long_is_refused(size: int) -> None:
    answer = APIClient().post("/api/v1/agent/register", " " * size, content_type="application/json")
    assert answer.status_code == 413
    assert answer.json()["title"] == "Request Entity Too Large"


def test_a_removed_node_is_told_so(cluster: Cluster, user: Any) -> None:
    agent = FakeAgent(cluster, "extra", user, port=7001)
    records.delete(agent.row)
    answer = agent.http.post(
        "/api/v1/agent/heartbeat", {"observed": {"generation": 0, "phase": "idle"}}
    )
    assert answer.status_code == 401
    assert "removed" in answer.json()["detail"]


def test_coordinators_get_keys_that_may_serve(cluster: Cluster, user: Any, browser: Any) -> None:
    coordinator = FakeCoordinator(cluster, user)
    playground = sha256_hex(desired.service_key(coordinator.row))
    assert coordinator.desired().api_key_hashes == (playground,)
    assert coordinator.desired().keys == ()
    good = create_api_key(name="good", user=user, scopes=["serve"])
    create_api_key(name="reader", user=user, scopes=["read"])
    old = create_api_key(name="old", user=user, scopes=["serve"])
    ApiKey.objects.filter(pk=old.pk).update(expires_at=timezone.now())
    (admitted,) = coordinator.desired().keys
    assert (admitted.key, admitted.hash) == (good.key, good.secret_hash)
    keys = ApiKeys()
    keys.admit([admitted], peppers=coordinator.desired().peppers)
    assert keys.check(f"Bearer {good.secret}") == sha256_hex(good.secret)

    topic = f"coordinator:{coordinator.row.pk}"
    Event.objects.filter(topic=topic).delete()
    browser.post(f"/settings/api-keys/{good.pk}/revoke")
    assert Event.objects.filter(topic=topic, type="desired").count() == 1
    assert coordinator.desired().keys == ()


@pytest.mark.django_db(transaction=True)
async def test_a_stream_sends_the_state_and_each_change(cluster: Cluster, user: Any) -> None:
    coordinator = await in_thread(lambda: FakeCoordinator(cluster, user).row)
    frames = desired_frames(coordinator.topic, follow(coordinator, desired.coordinator_desired))
    seen = [await next_state(frames)]
    await in_thread(create_api_key, name="a", user=user, scopes=["serve"])
    seen.append(await next_state(frames))
    await in_thread(ApiKey.objects.all().delete)
    seen.append(await next_state(frames))
    await frames.aclose()
    assert [len(state["keys"]) for state in seen] == [0, 1, 0]


@pytest.mark.django_db(transaction=True)
async def test_a_stream_finds_changes_without_events_and_ends(cluster: Cluster, user: Any) -> None:
    agent = await in_thread(lambda: FakeAgent(cluster, "tower", user, port=7001).row)
    frames = desired_frames(agent.topic, follow(agent, desired.desired_state), look_again_s=0.05)
    await next_state(frames)
    await in_thread(Node.unscoped.all().delete)
    assert not [frame async for frame in frames if b"event: desired" in frame]


@pytest.mark.django_db(transaction=True)
def test_streams_that_open_together_and_outlive_a_database_error_all_hear_what_follows(
    cluster: Cluster, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of the web, when every process dials in at the same moment."""
    agents = [
        FakeAgent(cluster, name, user, port=port).row
        for name, port in (("tower", 7001), ("laptop", 7002))
    ]
    read_events = broadcaster.frames_since
    failures = iter([OperationalError("the database restarts")])

    def fail_once(*asked: Any) -> list[broadcaster.Frame]:
        for error in failures:
            raise error
        return read_events(*asked)

    monkeypatch.setattr(broadcaster, "frames_since", fail_once)

    async def listen() -> set[str]:
        ours = broadcaster.Broadcaster()
        topics = [agent.topic for agent in agents]
        opened = await asyncio.gather(*(ours.subscribe([topic]) for topic in topics))
        for topic in topics:
            await emit(topic, "desired", {})
        frames = [await asyncio.wait_for(stream.queue.get(), 120) for stream in opened]
        for stream in opened:
            ours.unsubscribe(stream)
        assert len(asyncio.all_tasks()) <= 2, "one poll for all, and it ends with the last stream"
        return {frame.event.topic for frame in frames if frame}

    assert asyncio.run(listen()) == {agent.topic for agent in agents}


async def next_state(frames: Any) -> Any:
    async for frame in frames:
        if frame.startswith(b"event: desired"):
            return json.loads(frame.decode().split("data: ", 1)[1])["state"]
    raise AssertionError("the stream ended")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"generation": 2**70}, "generation"),
        ({"requests_waiting": 2**31}, "requests_waiting"),
        ({"edge_tokens_total": {"source->tower": 2**70}}, "edge_tokens_total.source->tower"),
        ({"traces": [{"arrived_at": 6e16}]}, "traces.0.arrived_at"),
        ({"traces": [{"prompt_tokens": 2**70}]}, "traces.0.prompt_tokens"),
    ],
)
def test_a_number_that_cannot_be_kept_is_named(
    cluster: Cluster, user: Any, changes: dict[str, Any], field: str
) -> None:
    coordinator = FakeCoordinator(cluster, user)
    if "traces" in changes:
        whole = made_up_trace(7, arrived_at=1.7e9).model_dump(mode="json")
        changes = {"traces": [whole | trace for trace in changes["traces"]]}
    answer = coordinator.http.post(
        "/api/v1/coordinator/report", REPORT.model_dump(mode="json") | changes
    )
    assert answer.status_code == 400, answer.content
    assert [error["field"] for error in answer.json()["errors"]] == [field]
