"""How many event streams one person may have open, and that none begins after the right to it has
ended."""

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helixweb.access import events_api
from helixweb.common import broadcaster, open_streams
from helixweb.common.event_place import Place
from helixweb.common.open_streams import COME_AGAIN_S
from helixweb.inventory.models import Cluster
from tests.helixweb.looking import contains
from tests.helixweb.stream_readers import (
    PAGES,
    REST,
    Reader,
    demoted,
    emit,
    in_thread,
    kept_out,
    key_revoked,
    logged_out,
)

MOST = 2
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def few(settings: Any) -> Iterator[None]:
    settings.HELIX_STREAMS_PER_USER = MOST
    yield
    gc.collect()  # whatever a test that failed has left open


@pytest.mark.usefixtures("few")
async def test_one_person_has_so_many_streams_open_and_no_more_and_others_have_theirs(
    reader: Reader, cluster: Cluster, django_user_model: Any
) -> None:
    other = await in_thread(Reader, "otto", cluster, django_user_model.objects)
    async with reader.stream(PAGES):
        async with reader.stream(REST):
            problem = await reader.ask(REST)
            assert (problem.status_code, problem["Retry-After"]) == (429, str(COME_AGAIN_S))
            said = problem.json()
            assert said["type"] == "about:blank#too_many_streams"
            contains(
                said["detail"], "One person may have 2 event streams", "HELIX_STREAMS_PER_USER"
            )
            page = await reader.ask(PAGES)
            assert (page.status_code, page["Retry-After"]) == (429, str(COME_AGAIN_S))
            # As shell.js asks: an EventSource does not say what it was answered.
            assert (await in_thread(reader.browser.get, PAGES)).status_code == 429
            async with other.stream(PAGES), other.stream(REST):
                pass
        assert (await in_thread(reader.browser.get, PAGES)).status_code == 400
        async with reader.stream(PAGES):  # one has ended
            pass
    assert open_streams.count(reader.user.pk) == 0


@pytest.mark.usefixtures("few")
async def test_waiting_for_events_counts_as_a_stream(
    reader: Reader,
) -> None:
    waits = [await reader.ask(REST, wait=60) for _ in range(MOST)]
    assert (await reader.ask(REST, wait=60)).status_code == 429
    look = await reader.ask(REST, wait=0)
    assert b'"events":' in b"".join([piece async for piece in look.streaming_content])
    await emit(reader.topic, "node", {})
    for wait in waits:
        async with asyncio.timeout(30):
            assert [piece async for piece in wait.streaming_content]
    assert open_streams.count(reader.user.pk) == 0


@pytest.mark.usefixtures("few")
async def test_an_answer_that_is_read_no_more_has_no_stream_open(reader: Reader) -> None:
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
async def test_a_right_that_ends_while_a_stream_is_asked_for_is_not_overlooked(
    reader: Reader,
    address: str,
    ending: Callable[[Reader], None],
    when: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it is known who asks and before it is looked at what they may hear, or after that and
    before the stream begins."""
    asked = events_api.unheard

    def unheard(named: Any, request: Any) -> list[str]:
        if when == "before":
            ending(reader)
        refused: list[str] = asked(named, request)
        if when == "after":
            ending(reader)
        return refused

    monkeypatch.setattr(events_api, "unheard", unheard)
    answer = await reader.ask(address)
    if when == "before":
        assert answer.status_code in (400, 401, 403)
    else:
        assert answer.status_code == 200
        assert await reader.is_cut_off(aiter(answer.streaming_content))
        await answer._iterator.aclose()


def test_places_are_taken_before_rights(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert reader.browser.get(address, {"topics": reader.topic}).status_code == 400
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
