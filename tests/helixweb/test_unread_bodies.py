"""The REST API is answered in threads that stay, by the same middleware, in one crossing; large
bodies of strangers are refused by their headers, and never spooled to the disk."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.db import connections

from helixweb.common.api_keys import create_api_key
from helixweb.common.models import KeyUsage
from helixweb.common.rest import handler
from helixweb.common.rest.handler import MOST_BYTES, MOST_UNKNOWN_BYTES, Application
from helixweb.inventory.models import Cluster
from tests.helixweb.looking import browser_of
from tests.helixweb.process_doubles import FakeAgent
from tests.helixweb.stream_readers import in_thread

pytestmark = pytest.mark.django_db(transaction=True)
PIECE = 64 * 1024
PATHS = ["/api/v1/clusters/", "/api/v1/agent/register", "/login/", "/api/v1/nothing/", "/nothing/"]


def scope_of(
    path: str, key: str = "", *, method: str = "GET", query: str = "", **headers: str
) -> dict[str, Any]:
    """Dashes in names of headers are underscores here."""
    fields = {"host": "127.0.0.1", "content-type": "application/json", **headers}
    if key:
        fields["authorization"] = f"Bearer {key}"
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": b"",
        "query_string": query.encode(), "headers": sent, "client": ("127.0.0.1", 9),
        "server": ("127.0.0.1", 80), "scheme": "http",
    }  # fmt: skip


async def asked(site: Application, scope: dict[str, Any], body: bytes = b"") -> tuple[int, Any]:
    scope["headers"].append((b"content-length", str(len(body)).encode()))
    talk = ApplicationCommunicator(site, scope)
    await talk.send_input({"type": "http.request", "body": body})
    start = await talk.receive_output(30)
    content = b""
    while True:
        part = await talk.receive_output(30)
        content += part["body"]
        if not part.get("more_body"):
            break
    await talk.wait(30)
    return start["status"], json.loads(content)


def closing(site: Application) -> None:
    """As the end of the process does."""
    for name, pool in site._pools.items():
        threads = handler.THREADS[name]
        all_there = threading.Barrier(threads)

        def close(all_there: threading.Barrier = all_there) -> None:
            all_there.wait(30)  # so that no thread closes twice, and another never
            connections.close_all()

        for one in [pool.submit(close) for _ in range(threads)]:
            one.result(30)
        pool.shutdown()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """It answers people in one thread."""
    monkeypatch.setitem(handler.THREADS, "people", 1)
    made = Application()
    yield made
    closing(made)


class Talk:
    """A client that sends pieces of a body until it is answered."""

    def __init__(self, path: str, *, key: str = "", stated: int | None, **headers: str) -> None:
        if stated is not None:
            headers["content_length"] = str(stated)
        self.scope = scope_of(path, key, method="POST", **headers)
        self.taken = 0

    def send(self, n_bytes: int) -> tuple[int, dict[str, Any]]:
        """Status and problem of the answer to a body of `n_bytes`; `taken` is what was read."""
        site = Application()

        async def receive() -> dict[str, Any]:
            n_piece = min(PIECE, n_bytes - self.taken)
            self.taken += n_piece
            return {
                "type": "http.request", "body": b"x" * n_piece, "more_body": self.taken < n_bytes,
            }  # fmt: skip

        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async_to_sync(site)(self.scope, receive, send)
        closing(site)
        content = b"".join(message.get("body", b"") for message in sent[1:])
        is_json = any(b"json" in value for _, value in sent[0]["headers"])
        return sent[0]["status"], json.loads(content) if is_json else {}


@pytest.fixture
def key(user: Any) -> str:
    return create_api_key(name="writes", user=user, scopes=["read", "write"]).secret


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("made_up", ["", "hlx_made.up", "hlxn_madeup"])
def test_of_a_strangers_large_body_nothing_is_read(path: str, made_up: str) -> None:
    talk = Talk(path, key=made_up, stated=MOST_UNKNOWN_BYTES + 1)
    status, problem = talk.send(MOST_UNKNOWN_BYTES + 1)
    assert status in (401, 413)
    assert talk.taken == 0
    assert not path.startswith("/api/") or problem["status"] == status


@pytest.mark.parametrize("path", PATHS)
def test_of_a_strangers_endless_body_little_is_read(
    path: str,
) -> None:
    talk = Talk(path, stated=None)
    assert talk.send(100 * MOST_BYTES)[0] == 413
    assert talk.taken <= MOST_UNKNOWN_BYTES + PIECE


def test_whoever_is_known_sends_more_but_not_without_end(user: Any, key: str) -> None:
    cookie = browser_of(user).cookies["sessionid"].OutputString()
    for known in ({"key": key}, {"cookie": cookie}):
        talk = Talk("/api/v1/clusters/", stated=MOST_UNKNOWN_BYTES + 1, **known)
        # Read, and no JSON; no CSRF token.
        assert talk.send(MOST_UNKNOWN_BYTES + 1)[0] in (400, 403)
        assert talk.taken == MOST_UNKNOWN_BYTES + 1
        for stated in (MOST_BYTES + 1, None):
            talk = Talk("/api/v1/clusters/", stated=stated, **known)
            assert talk.send(100 * MOST_BYTES)[0] == 413
            assert talk.taken <= MOST_BYTES + PIECE


@pytest.fixture
def credential(user: Any) -> str:
    """Of an agent."""
    agent = FakeAgent(Cluster.objects.create(name="lab"), "tower", user, port=7001)
    sent: str = agent.http._credentials["HTTP_AUTHORIZATION"]
    return sent.removeprefix("Bearer ")


def test_a_node_sends_large_messages_to_its_own_doors_only(credential: str) -> None:
    for path, status, taken in (
        ("/api/v1/agent/heartbeat", 413, MOST_UNKNOWN_BYTES + 1),  # the view's own limit
        ("/api/v1/clusters/", 401, 0),
    ):
        talk = Talk(path, key=credential, stated=MOST_UNKNOWN_BYTES + 1)
        assert (talk.send(MOST_UNKNOWN_BYTES + 1)[0], talk.taken) == (status, taken)


async def test_heartbeats_have_a_thread_of_their_own(credential: str, site: Application) -> None:
    go_on = threading.Event()
    for pool in (site._pools["people"], site._pools["imports"]):
        for _ in range(pool._max_workers):
            pool.submit(go_on.wait, 60)
    scope = scope_of("/api/v1/agent/heartbeat", credential, method="POST")
    try:
        status, _ = await asked(site, scope, b'{"observed": {"generation": 0, "phase": "idle"}}')
    finally:
        go_on.set()
    assert status == 200


async def test_requests_are_answered_and_connections_stay(
    key: str, cluster: Cluster, site: Application
) -> None:
    async def here() -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            site._pools["people"], lambda: connections["default"].connection
        )

    status, found = await asked(site, scope_of("/api/v1/nodes/", key, query="ordering=name"))
    assert (status, [row["name"] for row in found["results"]]) == (
        200, ["laptop", "mini", "tower"],
    )  # fmt: skip
    first = await here()
    new = json.dumps({"cluster": cluster.pk, "name": "new"}).encode()
    status, made = await asked(site, scope_of("/api/v1/nodes/", key, method="POST"), new)
    assert (status, made["name"]) == (201, "new")
    assert await here() is first is not None
    status, refused = await asked(site, scope_of("/api/v1/nodes/", ""))
    assert (status, refused["status"]) == (401, 401)


async def test_a_stream_ends_when_nobody_listens(
    key: str, cluster: Cluster, site: Application
) -> None:
    topics = f"topics=cluster:{cluster.pk}"
    scope = scope_of("/api/v1/events/", key, query=topics, accept="text/event-stream")
    talk = ApplicationCommunicator(site, scope)
    await talk.send_input({"type": "http.request", "body": b""})
    assert (await talk.receive_output(30))["status"] == 200
    assert b"retry" in (await talk.receive_output(30))["body"]
    await talk.send_input({"type": "http.disconnect"})
    await talk.wait(30)


async def test_requests_of_a_key_are_counted_at_the_end(key: str, site: Application) -> None:
    server = ApplicationCommunicator(site, {"type": "lifespan"})
    await server.send_input({"type": "lifespan.startup"})
    assert (await server.receive_output(30))["type"] == "lifespan.startup.complete"
    for _ in range(7):
        assert (await asked(site, scope_of("/api/v1/nodes/", key)))[0] == 200
    await server.send_input({"type": "lifespan.shutdown"})
    assert (await server.receive_output(30))["type"] == "lifespan.shutdown.complete"
    await server.wait(30)
    (usage,) = await in_thread(list, KeyUsage.objects.all())
    assert usage.rest_requests == 7


async def test_pages_go_the_way_of_django(site: Application) -> None:
    assert await asked(site, scope_of("/healthz")) == (200, {"status": "ok"})
