"""The event outbox reaches every open stream once, and a stream that reconnects misses nothing."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import AsyncClient, Client
from django.utils import timezone

from helixweb.common import broadcaster, events
from helixweb.common.broadcaster import OVERLAP, QUEUE_LENGTH, Frame, Subscription
from helixweb.common.event_place import MOST_MISSING, Place, missing_of
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster
from tests.helixweb.looking import contains
from tests.helixweb.stream_readers import emit, in_thread

WAIT_S = 120.0


async def next_events(stream: AsyncIterator[bytes], count: int) -> list[dict[str, Any]]:
    """The next events of a stream, without its comments."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        chunk = (await anext(stream)).decode()
        lines = dict(line.split(": ", 1) for line in chunk.splitlines() if ": " in line)
        if "event" in lines:
            found.append({**lines, "data": json.loads(lines["data"])})
    return found


@pytest.mark.django_db(transaction=True)  # the poll gives its connection back
async def test_every_stream_of_a_topic_hears_of_an_event() -> None:
    streams = [broadcaster.stream(["cluster:1"], place=None) for _ in range(2)]
    for stream in streams:
        await anext(stream)
    await emit("cluster:2", "node", {"name": "not ours"})
    await emit("cluster:1", "node", {"name": "tower"})
    for stream in streams:
        (event,) = await next_events(stream, 1)
        assert event["event"] == "node"
        pk = event["data"].pop("event_id")
        place = Place.parse(event["id"])
        assert place.newest == pk
        assert event["data"] == {"topic": "cluster:1", "name": "tower"}
        await stream.aclose()


@pytest.mark.django_db(transaction=True)  # the poll gives its connection back
async def test_a_stream_that_reconnects_is_replayed_what_it_missed_and_nothing_twice() -> None:
    for number in range(3):
        await emit("cluster:1", "node", {"number": number})
    first = (await in_thread(Event.objects.earliest, "pk")).pk
    stream = broadcaster.stream(["cluster:1"], place=Place(first))
    missed = await next_events(stream, 2)
    await emit("cluster:1", "node", {"number": 3})
    later = await next_events(stream, 1)
    assert [event["data"]["number"] for event in missed + later] == [1, 2, 3]
    await stream.aclose()


@pytest.mark.django_db(transaction=True)  # the poll gives its connection back
async def test_what_this_process_commits_comes_without_a_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcaster, "POLL_INTERVAL_S", 3600.0)

    stream = broadcaster.stream(["cluster:1"], place=None)
    await anext(stream)
    for number in range(2):
        await emit("cluster:1", "node", {"number": number})
        (event,) = await next_events(stream, 1)
        assert event["data"]["number"] == number
    await stream.aclose()


@pytest.mark.django_db(transaction=True)  # the poll gives its connection back
@pytest.mark.parametrize("broken", ["latest_place", "frames_since"])
async def test_a_poll_that_fails_ends_the_streams_instead_of_leaving_them_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """Those that begin, and those that are open; the next finds a poll that works."""
    ours = broadcaster.Broadcaster()
    monkeypatch.setattr(broadcaster, "BROADCASTER", ours)

    def fail(topics: frozenset[str] | None = None, *_: object) -> list[Frame]:
        if topics is None:  # as the poll asks
            raise ZeroDivisionError("a bug")
        return []

    async def told(stream: AsyncIterator[bytes]) -> list[bytes]:
        async with asyncio.timeout(WAIT_S):
            return [piece async for piece in stream]

    is_open = broadcaster.stream(["cluster:1"], place=None)
    if broken == "frames_since":
        await anext(is_open)
    with monkeypatch.context() as patched:
        patched.setattr(broadcaster, broken, fail)
        assert await told(is_open) == ([] if broken == "frames_since" else [b"retry: 2000\n\n"])
    contains(caplog.text, "the event outbox is read no more", "a bug")
    again = broadcaster.stream(["cluster:1"], place=None)
    await anext(again)
    await emit("cluster:1", "node", {"name": "tower"})
    (event,) = await next_events(again, 1)
    assert event["data"]["name"] == "tower"
    await again.aclose()


def test_a_stream_that_does_not_keep_up_is_ended_so_that_its_client_replays() -> None:
    slow = Subscription(["cluster:1"])
    for number in range(QUEUE_LENGTH + 1):
        slow.offer(Frame(Event(pk=number, topic="cluster:1"), Place(number)))
    assert slow.is_over


def test_the_stream_of_a_page_names_its_topics(browser: Client) -> None:
    assert browser.get("/events").status_code == 400
    assert browser.get("/events?topics=agent:1").status_code == 400


@pytest.mark.django_db(transaction=True)
async def test_the_stream_of_a_page_is_not_cached_and_replays_by_header(
    user: Any, cluster: Cluster
) -> None:
    topic = f"metrics:{cluster.pk}"
    await emit(topic, "node", {"number": 1})

    client = AsyncClient()
    await client.aforce_login(user)
    response = await client.get(f"/events?topics={topic}", headers={"Last-Event-ID": "0"})
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-cache"
    stream = aiter(response.streaming_content)
    (event,) = await next_events(stream, 1)
    assert event["data"]["number"] == 1
    await stream.aclose()


@pytest.mark.django_db(transaction=True)
async def test_an_open_stream_holds_no_connection() -> None:
    stream = broadcaster.stream(["cluster:1"], place=Place(0))
    await anext(stream)
    await emit("cluster:1", "node", {})
    await next_events(stream, 1)
    assert await sync_to_async(lambda: connection.connection)() is None
    await stream.aclose()


async def emit_as(pk: int) -> None:
    """An event whose id was given out then, and whose row is there only now."""
    row = {"topic": "cluster:1", "type": "node", "data": {"number": pk}}
    await in_thread(Event.objects.create, pk=pk, **row)


@pytest.mark.usefixtures("time_stands_still")  # what is late is late within the overlap
@pytest.mark.django_db(transaction=True)  # the poll gives its connection back
async def test_an_event_that_is_committed_late_is_read_once_however_often_a_stream_breaks() -> None:
    await emit("cluster:1", "node", {"number": 0})
    first = (await in_thread(Event.objects.get)).pk
    await in_thread(Event.objects.update, created_at=timezone.now() - 2 * OVERLAP)
    for pk in (first + 2, first + 4):
        await emit_as(pk)
    last = str(first)
    assert await in_thread(events.latest_id) == f"{first + 4}~{first + 1}.{first + 3}"
    for late, wanted in ((None, (2, 4)), (1, (1,)), (3, (3,)), (5, (5,))):
        if late is not None:
            await emit_as(first + late)
        stream = broadcaster.stream(["cluster:1"], place=Place.parse(last))
        seen = await next_events(stream, len(wanted))
        await stream.aclose()
        assert [event["data"]["number"] - first for event in seen] == list(wanted)
        last = seen[-1]["id"]
    assert last == str(first + 5)


@pytest.mark.usefixtures("time_stands_still")  # what is late is late within the overlap
@pytest.mark.django_db(transaction=True)  # the poll gives its connection back
async def test_an_open_stream_says_what_it_has_not_had() -> None:
    stream = broadcaster.stream(["cluster:1"], place=None)
    await anext(stream)
    for pk, place in ((1002, "1002"), (1004, "1004~1003"), (1003, "1004")):
        await emit_as(pk)
        (event,) = await next_events(stream, 1)
        assert (event["data"]["number"], event["id"]) == (pk, place)
    await stream.aclose()


@pytest.mark.parametrize("text", ["7", "7~5", "900~5.6.899"])
def test_a_place_is_read_as_it_is_written(text: str) -> None:
    assert str(Place.parse(text)) == text


@pytest.mark.parametrize("text", ["", "x", "7~x", "7~5.", "~5", "7~" + "5." * 5000 + "5"])
def test_a_place_that_is_none_replays_nothing(text: str) -> None:
    assert Place.parse(text) is None


def test_what_was_tidied_away_is_not_waited_for() -> None:
    assert missing_of([5000, 5002], after=0) == {5001}
    assert len(missing_of(range(0, 1000, 2), after=0)) == MOST_MISSING
