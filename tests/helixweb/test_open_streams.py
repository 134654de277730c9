"""How many event streams one person may have open, and that none begins after the right to it has
ended."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import AsyncClient, Client

from helixweb.access import events_api
from helixweb.access.models import Grant
from helixweb.access.roles import Role
from helixweb.common import api_keys, broadcaster, events, open_streams
from helixweb.common.connections import returns_connection
from helixweb.common.event_place import Place
from helixweb.common.open_streams import COME_AGAIN_S
from helixweb.inventory.models import Cluster
from tests.helixweb.test_hostile_topics import demoted, ends, kept_out, key_revoked, logged_out

PAGES, REST = "/events", "/api/v1/events/"
STREAM = {"Accept": "text/event-stream"}
MOST = 2
pytestmark = pytest.mark.django_db(transaction=True)


class Reader:
    """Somebody who looks at one cluster, with a browser and with a key."""

    def __init__(self, name: str, cluster: Cluster, users: Any) -> None:
        self.user = users.create_user(name)
        Grant.objects.create(user=self.user, cluster=cluster, role=Role.VIEWER)
        self.topics = {"topics": f"cluster:{cluster.pk}"}
        self.key = api_keys.create_api_key(name="k", user=self.user, scopes=["read"])
        self.browser = Client()
        self.browser.force_login(self.user)
        # All pages are loaded then, as when a site has started.
        assert self.browser.get("/").status_code == 200

    async def ask(self, address: str, **more: Any) -> Any:
        client = AsyncClient()
        if address == PAGES:
            client.cookies = self.browser.cookies
            return await client.get(address, self.topics)
        headers = {"Authorization": f"Bearer {self.key.secret}", **(STREAM if not more else {})}
        return await client.get(address, {**self.topics, **more}, headers=headers)

    @asynccontextmanager
    async def stream(self, address: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open within, and closed after that as when its reader goes away."""
        answer = await self.ask(address)
        assert answer.status_code == 200, answer.content
        pieces = answer._iterator  # which `streaming_content` wraps, anew each time
        assert await anext(pieces) == b"retry: 2000\n\n"
        number = open_streams.count(self.user.pk)
        yield pieces
        await pieces.aclose()
        # The test client has wrapped it, and leaves it to Python, which tells nobody.
        async with asyncio.timeout(30):
            while open_streams.count(self.user.pk) == number:  # noqa: ASYNC110
                await asyncio.sleep(0)


@pytest.fixture
def reader(cluster: Cluster, django_user_model: Any) -> Reader:
    return Reader("vera", cluster, django_user_model.objects)


@pytest.fixture
def few(settings: Any) -> Iterator[None]:
    settings.HELIX_STREAMS_PER_USER = MOST
    yield
    gc.collect()  # whatever a test that failed has left open


@pytest.mark.usefixtures("few")
def test_one_person_has_so_many_streams_open_and_no_more_and_others_have_theirs(
    reader: Reader, cluster: Cluster, django_user_model: Any
) -> None:
    other = Reader("otto", cluster, django_user_model.objects)

    @async_to_sync
    async def scenario() -> None:
        async with reader.stream(PAGES):
            async with reader.stream(REST):
                problem = await reader.ask(REST)
                assert (problem.status_code, problem["Retry-After"]) == (429, str(COME_AGAIN_S))
                told = problem.json()
                assert told["type"] == "about:blank#too_many_streams"
                assert "One person may have 2 event streams" in told["detail"]
                assert "HELIX_STREAMS_PER_USER" in told["detail"]
                page = await reader.ask(PAGES)
                assert (page.status_code, page["Retry-After"]) == (429, str(COME_AGAIN_S))
                # As shell.js asks: an EventSource does not tell what it was answered.
                assert (await sync_to_async(reader.browser.get)(PAGES)).status_code == 429
                async with other.stream(PAGES), other.stream(REST):
                    pass
            assert (await sync_to_async(reader.browser.get)(PAGES)).status_code == 400
            async with reader.stream(PAGES):  # one has ended
                pass
        assert open_streams.count(reader.user.pk) == 0

    scenario()


@pytest.mark.usefixtures("few")
async def test_who_waits_for_events_has_a_stream_open_and_who_only_looks_has_not(
    reader: Reader,
) -> None:
    waits = [await reader.ask(REST, wait=60) for _ in range(MOST)]
    assert (await reader.ask(REST, wait=60)).status_code == 429
    look = await reader.ask(REST, wait=0)
    assert b'"events":' in b"".join([piece async for piece in look.streaming_content])
    emit = sync_to_async(returns_connection(events.emit))
    await emit(reader.topics["topics"], "node", {})
    for wait in waits:
        async with asyncio.timeout(30):
            assert [piece async for piece in wait.streaming_content]
    assert open_streams.count(reader.user.pk) == 0


@pytest.mark.usefixtures("few")
async def test_an_answer_that_nobody_reads_any_more_has_no_stream_open(reader: Reader) -> None:
    """Django drops it without closing it when its client has gone before the first byte."""

    answers = [await reader.ask(REST) for _ in range(MOST)]
    assert (await reader.ask(REST)).status_code == 429
    del answers
    gc.collect()
    async with reader.stream(REST):
        pass


@pytest.mark.parametrize(
    ("address", "ending"),
    [(PAGES, logged_out), (PAGES, demoted), (REST, kept_out), (REST, key_revoked)],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_right_that_ends_while_a_stream_is_asked_for_is_not_overlooked(
    reader: Reader,
    address: str,
    ending: Callable[[Any, Any, Client], None],
    when: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it is known who asks and before it is looked at what they may hear, or after that and
    before anybody listens."""
    asked = events_api.unheard

    def unheard(named: Any, request: Any) -> list[str]:
        if when == "before":
            ending(reader.user, reader.key, reader.browser)
        refused: list[str] = asked(named, request)
        if when == "after":
            ending(reader.user, reader.key, reader.browser)
        return refused

    cookies = reader.browser.cookies.copy()

    @async_to_sync
    async def scenario() -> bool:
        monkeypatch.setattr(events_api, "unheard", unheard)
        client = AsyncClient()
        if address == PAGES:
            client.cookies = cookies
            answer = await client.get(address, reader.topics)
        else:
            answer = await reader.ask(address)
        if when == "before":
            return answer.status_code in (400, 401, 403)
        assert answer.status_code == 200
        over = await ends(aiter(answer.streaming_content), reader.topics["topics"])
        await answer._iterator.aclose()
        return over

    assert scenario()


def test_places_are_taken_before_it_is_asked_what_may_be_heard(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what ends between the two is seen by neither."""
    said: list[str] = []
    taken = broadcaster.latest_place

    def latest_place() -> Place:
        said.append("place")
        return taken()

    def unheard(topics: Any, request: Any) -> list[str]:
        said.append("rights")
        return ["it"]

    monkeypatch.setattr(broadcaster, "latest_place", latest_place)
    monkeypatch.setattr(events_api, "unheard", unheard)
    for address in (PAGES, REST):
        said.clear()
        assert reader.browser.get(address, reader.topics).status_code == 400
        assert said == ["place", "rights"]


def test_streams_are_counted_while_others_are_opened() -> None:
    """Views are in several threads, and one may look while another adds."""
    over = threading.Event()
    wrong: list[RuntimeError] = []

    def look() -> None:
        try:
            while not over.is_set():
                open_streams.count(2)
        except RuntimeError as error:
            wrong.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        kept = [open_streams.begin(user_id) for user_id in range(3, 1000)]
    finally:
        over.set()
        looking.join(60)
    assert not wrong
    assert open_streams.count(kept[0].user_id) == 1
