"""The event outbox reaches every open stream once, and a stream that reconnects misses nothing.

Programs read it by a stream, or by asking and waiting; no reader gets what it may not see.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import AsyncClient, Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common import broadcaster, events
from helixweb.common.api_keys import create_api_key
from helixweb.common.broadcaster import OVERLAP, QUEUE_LENGTH, Frame, Subscription
from helixweb.common.event_place import MOST_MISSING, Place, missing_of
from helixweb.common.models import Event
from helixweb.common.sse import LONGEST_STREAM_S
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from tests.helixweb.looking import answered, contains
from tests.helixweb.stream_readers import (
    PAGES,
    REST,
    Reader,
    demoted,
    emit,
    in_thread,
    json_of,
    kept_out,
    key_revoked,
    logged_out,
)

pytestmark = pytest.mark.django_db(transaction=True)  # a poll gives its connection back

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


async def test_own_commits_reach_streams_without_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "POLL_INTERVAL_S", 3600.0)

    stream = broadcaster.stream(["cluster:1"], place=None)
    await anext(stream)
    for number in range(2):
        await emit("cluster:1", "node", {"number": number})
        (event,) = await next_events(stream, 1)
        assert event["data"]["number"] == number
    await stream.aclose()


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


async def test_the_stream_of_a_page_replays_and_is_not_cached(user: Any, cluster: Cluster) -> None:
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


@pytest.fixture
def client(user: Any) -> AsyncClient:
    key = create_api_key(name="reads", user=user, scopes=["read"]).secret
    return AsyncClient(Authorization=f"Bearer {key}")


async def asked(client: AsyncClient, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = await json_of(await client.get(REST, query))
    return found


async def test_events_since_a_place_are_told_at_once(client: AsyncClient, cluster: Cluster) -> None:
    topic = f"cluster:{cluster.pk}"

    begin = await asked(client, topics=topic)
    assert begin["events"] == []
    await emit(topic, "node", {"name": "tower"})
    await emit("cluster:0", "node", {"name": "not ours"})
    await emit(topic, "node", {"name": "mini"})
    told = await asked(client, topics=topic, after=begin["after"], wait=30)
    assert [event["data"] for event in told["events"]] == [{"name": "tower"}, {"name": "mini"}]
    assert {(event["type"], event["topic"]) for event in told["events"]} == {("node", topic)}
    since_first = await asked(client, topics=topic, after=told["events"][0]["id"])
    assert [event["data"]["name"] for event in since_first["events"]] == ["mini"]
    assert (await asked(client, topics=topic, after=told["after"]))["events"] == []


async def test_a_wait_ends_with_the_next_event(client: AsyncClient, cluster: Cluster) -> None:
    topic = f"cluster:{cluster.pk}"

    begin = await asked(client, topics=topic)
    waiting = asyncio.create_task(asked(client, topics=topic, after=begin["after"], wait=60))
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    await emit(topic, "node", {"name": "tower"})
    told = await asyncio.wait_for(waiting, 120)
    assert [event["data"]["name"] for event in told["events"]] == ["tower"]


async def test_a_wait_without_events_keeps_its_place(client: AsyncClient, cluster: Cluster) -> None:
    topic = f"cluster:{cluster.pk}"
    begin = await asked(client, topics=topic)
    again = await asked(client, topics=topic, after=begin["after"], wait=0.01)
    assert again == {"events": [], "after": begin["after"]}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "topics"),
        ({"topics": ","}, "topics"),
        ({"topics": "agent:1"}, "topics"),
        ({"topics": "cluster:999"}, "topics"),
        ({"topics": "node:999,plan-run:999"}, "topics"),
        ({"topics": "cluster:1", "wait": "61"}, "wait"),
        ({"topics": "cluster:1", "wait": "soon"}, "wait"),
        ({"topics": "cluster:1", "after": "yesterday"}, "after"),
        ({"topics": "cluster:1", "colour": "red"}, "colour"),
    ],
)
def test_what_makes_no_sense_is_refused(
    api: APIClient, cluster: Cluster, query: dict[str, str], field: str
) -> None:
    answer = answered(api.get(REST, query), 400)
    assert [error["field"] for error in answer.json()["errors"]] == [field]


@pytest.mark.parametrize(
    "topic",
    ["cluster:{other}", "metrics:{other}", "node:999", "plan-run:1", "agent:1", "coordinator:1",
     "rights:1", "rights:{user}", "cluster:{own},cluster:{other}", "cluster:", "*", "cluster:-1"],
)  # fmt: skip
def test_hidden_topics_are_refused(reader: Reader, cluster: Cluster, topic: str) -> None:
    other = records.create(Cluster, name="other")
    named = topic.format(own=cluster.pk, other=other.pk, user=reader.user.pk)
    for address in (PAGES, REST):
        answer = reader.browser.get(address, {"topics": named})
        assert answer.status_code in (400, 403, 404), address
    assert reader.browser.get(REST, {"topics": reader.topic}).status_code == 200


async def test_a_stream_asks_again_in_the_end_who_reads_it() -> None:
    """A key or a session may have ended by its time."""
    stream = broadcaster.stream(["cluster:1"], place=None, longest_s=0.0)
    assert [piece async for piece in stream] == [b"retry: 2000\n\n"]
    assert 0 < LONGEST_STREAM_S <= 3600


@pytest.mark.parametrize("waits_at_once", [True, False], ids=["waiting", "just asked"])
async def test_a_wait_gets_nothing_when_its_right_ends(reader: Reader, waits_at_once: bool) -> None:
    answer = await reader.ask(REST, wait=60)
    waiting = asyncio.create_task(json_of(answer)) if waits_at_once else None
    if waiting is not None:
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done
    await in_thread(demoted, reader)
    await emit(reader.topic, "node", {"secret": 1})
    async with asyncio.timeout(120):
        said = await (waiting or json_of(answer))
    assert said["events"] == []
    refused = await reader.ask(REST, wait=60)
    assert refused.status_code in (400, 403), refused.content


@pytest.mark.parametrize("ending", [demoted, kept_out, key_revoked, logged_out])
async def test_streams_end_with_the_right(reader: Reader, ending: Callable[[Reader], None]) -> None:
    async with reader.stream(REST if ending is key_revoked else PAGES) as pieces:
        await emit(reader.topic, "node", {"name": "tower"})
        assert b"tower" in await anext(pieces)
        await in_thread(ending, reader)
        assert await reader.is_cut_off(pieces)
