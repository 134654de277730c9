"""The REST API is answered in threads that stay: by the same middleware, in one crossing."""

import asyncio
import json
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.db import connections

from helixweb.common.api_keys import create_api_key
from helixweb.common.models import ApiKey, KeyUsage
from helixweb.common.rest import handler
from helixweb.common.rest.handler import Application
from helixweb.inventory.models import Cluster

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def key(user: Any) -> str:
    return create_api_key(name="reads", user=user, scopes=["read", "write"]).secret


def scope_of(path: str, key: str, *, method: str = "GET", query: str = "") -> dict[str, Any]:
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    if key:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    return {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": b"",
        "query_string": query.encode(), "headers": headers, "client": ("127.0.0.1", 9),
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


async def test_requests_are_answered_and_connections_stay(
    key: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(handler.THREADS, "people", 1)
    site = Application()

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
    closing(site)


async def test_a_stream_ends_when_nobody_listens(key: str, cluster: Cluster) -> None:
    site = Application()
    scope = scope_of("/api/v1/events/", key, query=f"topics=cluster:{cluster.pk}")
    scope["headers"].append((b"accept", b"text/event-stream"))

    talk = ApplicationCommunicator(site, scope)
    await talk.send_input({"type": "http.request", "body": b""})
    assert (await talk.receive_output(30))["status"] == 200
    assert b"retry" in (await talk.receive_output(30))["body"]
    await talk.send_input({"type": "http.disconnect"})
    await talk.wait(30)
    closing(site)


def test_requests_of_a_key_are_written_before_the_process_ends(key: str, cluster: Cluster) -> None:
    site = Application()

    @async_to_sync
    async def scenario() -> None:
        server = ApplicationCommunicator(site, {"type": "lifespan"})
        await server.send_input({"type": "lifespan.startup"})
        assert (await server.receive_output(30))["type"] == "lifespan.startup.complete"
        for _ in range(7):
            assert (await asked(site, scope_of("/api/v1/nodes/", key)))[0] == 200
        await server.send_input({"type": "lifespan.shutdown"})
        assert (await server.receive_output(30))["type"] == "lifespan.shutdown.complete"
        await server.wait(30)

    scenario()
    assert KeyUsage.objects.get(key=ApiKey.objects.get()).rest_requests == 7
    closing(site)


async def test_pages_go_the_way_of_django(key: str) -> None:
    site = Application()

    status, found = await asked(site, scope_of("/healthz", ""))
    assert (status, found) == (200, {"status": "ok"})
    closing(site)
