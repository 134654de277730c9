"""A chat from the browser reaches the coordinator, and its answer comes back as it is made."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.test import AsyncClient, Client
from django.utils import timezone

from helixweb.asgi import application
from helixweb.common.auth import sha256_hex
from helixweb.deployment.services import deploying, desired
from helixweb.inventory.models import Cluster, Coordinator
from tests.helixweb.chat_double import HELIX, WAIT_S, ChatDouble
from tests.helixweb.looking import contains, tight
from tests.helixweb.process_doubles import FakeCluster
from tests.helixweb.test_unread_bodies import scope_of

pytestmark = pytest.mark.usefixtures("time_stands_still")

JSON = "application/json"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def chat_server() -> Iterator[ChatDouble]:
    with ChatDouble("Good", " day") as double:
        yield double


@pytest.fixture
def deployed(joined: FakeCluster, user: Any) -> int:
    """The id of a deployment in service."""
    return joined.deploy().pk


@pytest.fixture
def reachable(deployed: int, chat_server: ChatDouble) -> int:
    """The id of a deployment whose coordinator answers."""
    Coordinator.unscoped.update(http_url=chat_server.url)
    return deployed


def ask(user: Any, body: Any) -> tuple[Any, bytes]:
    """The response to a chat, and all of its content."""

    @async_to_sync
    async def scenario() -> tuple[Any, bytes]:
        client = AsyncClient()
        await client.aforce_login(user)
        response = await client.post("/playground/chat", body, content_type="application/json")
        if not response.streaming:
            return response, response.content
        content: AsyncIterator[bytes] = response.streaming_content
        return response, b"".join([chunk async for chunk in content])

    return scenario()


def events_of(content: bytes) -> list[Any]:
    data = [line.removeprefix("data: ") for line in content.decode().splitlines() if line]
    return [json.loads(text) for text in data if text != "[DONE]"]


@pytest.mark.django_db(transaction=True)
def test_an_open_page_survives_a_change(joined: FakeCluster, reachable: int, user: Any) -> None:
    newer = joined.deploy()
    assert newer.pk != reachable
    response, content = ask(user, {"deployment": reachable, "messages": HELLO})
    assert response.status_code == 200, content
    deploying.stop(newer, user=user, now=timezone.now())
    response, content = ask(user, {"deployment": reachable, "messages": HELLO})
    assert response.status_code == 409
    assert json.loads(content)["error"]["code"] == "not_in_service"


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_streamed_with_the_pipeline_that_computed_it(
    reachable: int, chat_server: ChatDouble, user: Any
) -> None:
    response, content = ask(
        user, {"deployment": reachable, "messages": HELLO, "temperature": 0, "max_tokens": 8}
    )
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["Cache-Control"] == "no-cache"
    chunks = events_of(content)
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks[:2]] == ["Good", " day"]
    assert chunks[2]["helix"] == HELIX
    assert chat_server.bodies == [
        {
            "model": "tiny-llama", "messages": HELLO, "temperature": 0, "max_tokens": 8,
            "stream": True, "stream_options": {"include_usage": True},
        }
    ]  # fmt: skip
    # The key is one that the coordinator was told to admit.
    hashes = desired.coordinator_desired(Coordinator.unscoped.get()).api_key_hashes
    assert sha256_hex(chat_server.keys[0]) in hashes


@pytest.mark.django_db(transaction=True)
def test_what_the_coordinator_refuses_comes_back_as_it_said_it(
    reachable: int, chat_server: ChatDouble, user: Any
) -> None:
    error = {"error": {"message": "the queue is full", "type": "rate_limit_error"}}
    chat_server.refusal = (429, error, {"Retry-After": "3"})
    response, content = ask(user, {"deployment": reachable, "messages": HELLO})
    assert response.status_code == 429
    assert response.headers["Retry-After"] == "3"
    assert json.loads(content) == error


@pytest.mark.django_db(transaction=True)
def test_a_coordinator_that_is_not_there_is_named_with_the_remedy(deployed: int, user: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: refuses connections
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        Coordinator.unscoped.update(http_url=url)
        response, content = ask(user, {"deployment": deployed, "messages": HELLO})
    assert response.status_code == 502
    message = json.loads(content)["error"]["message"]
    contains(message, f"The coordinator at {url}/v1 does not answer", "start it again")


def folded(content: bytes, **headers: str) -> tuple[bytes, dict[str, str]]:
    return gzip.compress(content, mtime=0), {"Content-Encoding": "gzip", **headers}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, {"secret": "of another server"}, {}),
        (404, {"secret": "of another server"}, {}),
        (302, {"error": "secret"}, {"Location": "http://127.0.0.1/secret"}),
        (500, {"error": "secret"}, {"Content-Type": "text/html"}),
        (500, {"error": "secret" * 20_000}, {}),
        (400, *folded(b'{"error": "' + b"secret" * 1_000_000 + b'"}', **{"Content-Type": JSON})),
        (400, *folded(b'{"error": "secret"}', **{"Content-Type": JSON})),
        (200, *folded(b"data: secret\n\n" * 100_000, **{"Content-Type": "text/event-stream"})),
        (400, b"[" * 60_000, {"Content-Type": JSON}),
    ],
)
def test_what_answers_and_is_no_coordinator_is_neither_unfolded_nor_shown(
    reachable: int, chat_server: ChatDouble, user: Any, status: int, body: Any, headers: Any
) -> None:
    chat_server.refusal = (status, body, headers)
    response, content = ask(user, {"deployment": reachable, "messages": HELLO})
    assert response.status_code == 502
    assert response.headers["Content-Type"] == "application/json"
    assert "is no coordinator" in json.loads(content)["error"]["message"]
    assert b"secret" not in content
    assert chat_server.encodings == ["identity"]


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_breaks_off_ends_with_an_error(
    reachable: int, chat_server: ChatDouble, user: Any
) -> None:
    chat_server.break_off = True
    response, content = ask(user, {"deployment": reachable, "messages": HELLO})
    assert response.status_code == 200
    first, last = events_of(content)
    assert first["choices"][0]["delta"]["content"] == "Good"
    assert "broke off in the middle" in last["error"]["message"]


@pytest.mark.django_db(transaction=True)
async def test_hanging_up_ends_the_request_at_the_coordinator(
    reachable: int, chat_server: ChatDouble, browser: Client
) -> None:
    chat_server.hold = True
    token = "t" * 32
    cookie = f"sessionid={browser.cookies['sessionid'].value}; csrftoken={token}"
    scope = scope_of("/playground/chat", method="POST", cookie=cookie, x_csrftoken=token)
    body = json.dumps({"deployment": reachable, "messages": HELLO}).encode()

    site = ApplicationCommunicator(application, scope)
    await site.send_input({"type": "http.request", "body": body})
    start = await site.receive_output(WAIT_S)
    assert start["status"] == 200, start
    first = await site.receive_output(WAIT_S)
    assert b"Good" in first["body"]
    assert not chat_server.hung_up.is_set()
    await site.send_input({"type": "http.disconnect"})
    await asyncio.to_thread(chat_server.hung_up.wait, WAIT_S / 2)
    assert chat_server.hung_up.is_set()
    await site.wait(WAIT_S)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"messages": []}', "deployment is null"),
        ('{"deployment": "1"}', 'deployment is "1"'),
        ('{"deployment": true}', "deployment is true"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_request_without_a_deployment_says_what_is_wrong(user: Any, body: str, said: str) -> None:
    response, content = ask(user, body)
    assert response.status_code == 400
    assert said in json.loads(content)["error"]["message"]


@pytest.mark.parametrize("number", [99, -1, 10**30])
@pytest.mark.django_db(transaction=True)
def test_an_unknown_deployment_is_not_found(user: Any, number: int) -> None:
    response, content = ask(user, {"deployment": number, "messages": HELLO})
    assert response.status_code == 404
    assert f"no deployment {number}" in json.loads(content)["error"]["message"]


@pytest.mark.django_db(transaction=True)
def test_a_deployment_that_is_not_in_service_says_so(deployed: int, user: Any) -> None:
    Coordinator.unscoped.update(http_url="")
    response, content = ask(user, {"deployment": deployed, "messages": HELLO})
    assert response.status_code == 409
    assert "has not said where it is reached" in json.loads(content)["error"]["message"]
    row = Coordinator.unscoped.get().cluster.deployments.get()
    deploying.stop(row, user=user, now=timezone.now())
    response, content = ask(user, {"deployment": deployed, "messages": HELLO})
    assert response.status_code == 409
    assert f"Deployment {deployed} is stopping" in json.loads(content)["error"]["message"]


def test_the_page_offers_what_is_in_service(cluster: Cluster, user: Any, browser: Client) -> None:
    assert "Nothing answers chats yet" in browser.get("/playground/").content.decode()
    joined = FakeCluster(cluster, user)
    row = joined.deploy()
    html = tight(browser.get(f"/playground/?deployment={row.pk}").content.decode())
    assert f'<option value="{row.pk}" data-model="tiny-llama"' in html
    contains(html, "tiny-llama on tiny</option>", 'data-url="http://127.0.0.1:8100/v1" selected')
    assert desired.service_key(joined.coordinator.row) not in html
