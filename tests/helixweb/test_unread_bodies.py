"""Bodies of strangers: refused by their headers, and never spooled to the disk."""

import json
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth import get_user_model

from helixweb.common.api_keys import create_api_key
from helixweb.common.rest import handler
from helixweb.common.rest.handler import MOST_BYTES, MOST_UNKNOWN_BYTES, Application
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import presence
from tests.helixweb.looking import browser_of
from tests.helixweb.process_doubles import FakeAgent
from tests.helixweb.test_rest_handler import closing, scope_of

pytestmark = pytest.mark.django_db(transaction=True)
PIECE = 64 * 1024
PATHS = ["/api/v1/clusters/", "/api/v1/agent/register", "/login/", "/api/v1/nothing/", "/nothing/"]


class Talk:
    """A client that sends pieces of a body until it is answered."""

    def __init__(self, path: str, *, key: str = "", cookie: str = "", stated: int | None) -> None:
        self.scope = scope_of(path, key, method="POST")
        if not key:
            self.scope["headers"] = [
                (name, value) for name, value in self.scope["headers"] if name != b"authorization"
            ]
        if cookie:
            self.scope["headers"].append((b"cookie", f"sessionid={cookie}".encode()))
        if stated is not None:
            self.scope["headers"].append((b"content-length", str(stated).encode()))
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
def user() -> Any:
    return get_user_model().objects.create_superuser("grace")


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
def test_of_a_strangers_body_without_a_length_no_more_is_read_than_stays_in_memory(
    path: str,
) -> None:
    talk = Talk(path, stated=None)
    assert talk.send(100 * MOST_BYTES)[0] == 413
    assert talk.taken <= MOST_UNKNOWN_BYTES + PIECE


def test_whoever_is_known_sends_more_but_not_without_end(user: Any, key: str) -> None:
    client = browser_of(user)
    cookie = client.cookies["sessionid"].value
    for known in ({"key": key}, {"cookie": cookie}):
        talk = Talk("/api/v1/clusters/", stated=MOST_UNKNOWN_BYTES + 1, **known)
        assert talk.send(MOST_UNKNOWN_BYTES + 1)[0] in (
            400,
            403,
        )  # read, and no JSON; no CSRF token
        assert talk.taken == MOST_UNKNOWN_BYTES + 1
        for stated in (MOST_BYTES + 1, None):
            talk = Talk("/api/v1/clusters/", stated=stated, **known)
            assert talk.send(100 * MOST_BYTES)[0] == 413
            assert talk.taken <= MOST_BYTES + PIECE


def test_a_node_sends_large_messages_to_its_own_doors_only(user: Any) -> None:
    agent = FakeAgent(Cluster.objects.create(name="lab"), "tower", user, port=7001)
    key = agent.http._credentials["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    for path, status, taken in (
        ("/api/v1/agent/heartbeat", 413, MOST_UNKNOWN_BYTES + 1),  # the view's own limit
        ("/api/v1/clusters/", 401, 0),
    ):
        talk = Talk(path, key=key, stated=MOST_UNKNOWN_BYTES + 1)
        assert (talk.send(MOST_UNKNOWN_BYTES + 1)[0], talk.taken) == (status, taken)


def test_heartbeats_are_answered_while_every_other_thread_is_taken(
    user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(handler.THREADS, "people", 2)
    agent = FakeAgent(Cluster.objects.create(name="lab"), "tower", user, port=7001)
    credential = agent.http._credentials["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    site = Application()
    go_on = threading.Event()
    pools = (site._pools["people"], site._pools["imports"])
    for pool in pools:
        for _ in range(pool._max_workers):
            pool.submit(go_on.wait, 60)

    @async_to_sync
    async def scenario() -> int:
        body = b'{"observed": {"generation": 0, "phase": "idle"}}'
        scope = scope_of("/api/v1/agent/heartbeat", credential, method="POST")
        talk = ApplicationCommunicator(site, scope)
        await talk.send_input({"type": "http.request", "body": body})
        start = await talk.receive_output(30)
        await talk.receive_output(30)
        await talk.wait(30)
        return int(start["status"])

    try:
        assert scenario() == 200
    finally:
        go_on.set()
        closing(site)
    assert presence.authenticate_agent(credential) is not None
