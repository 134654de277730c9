"""Fans the event outbox out to every open stream of this process; one database poll for all.

Rows may commit out of id order, so the poll re-reads the last seconds and skips what it has
delivered; a stream that reconnects with Last-Event-ID, which is a `Place`, is replayed from the
table.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from asgiref.sync import sync_to_async
from django.db import Error
from django.db.models import Q
from django.utils import timezone

from helixweb.common.connections import returns_connection
from helixweb.common.event_place import Place, missing_of
from helixweb.common.models import Event

logger = logging.getLogger(__name__)

# What another process emits waits this long at most; who emits in this one wakes the poll.
POLL_INTERVAL_S = 0.15
# Between two polls, however many events are emitted.
PAUSE_S = 0.02
KEEP_ALIVE_S = 15.0
# How long a transaction may stay open after its insert and still be seen.
OVERLAP = timedelta(seconds=10)
QUEUE_LENGTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An event as it goes over the wire, made once for all streams."""

    pk: int
    topic: str
    content: bytes


class Subscription:
    """One open stream: its topics and what waits to be written to it."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self.queue: asyncio.Queue[Frame] = asyncio.Queue(QUEUE_LENGTH)
        self.is_over = False

    def offer(self, frame: Frame) -> None:
        if frame.topic not in self.topics or self.is_over:
            return
        try:
            self.queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.is_over = True  # the stream ends; its client reconnects and replays

    def end(self) -> None:
        """Nothing will come any more; who waits for something need not."""
        self.is_over = True
        if self.queue.empty():
            self.queue.put_nowait(Frame(pk=0, topic="", content=b""))


class Broadcaster:
    """Polls while anyone listens, and at once when woken."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._poll: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._started = asyncio.Event()
        self._cursor = 0
        self._delivered: set[int] = set()

    async def subscribe(self, topics: Iterable[str]) -> Subscription:
        subscription = Subscription(topics)
        self._subscriptions.add(subscription)
        if self._poll is None or self._poll.done():
            # Set without waiting in between, so that streams that open together share one poll.
            self._started = asyncio.Event()
            self._poll = asyncio.create_task(self._run(self._started))
            self._poll.add_done_callback(partial(self._poll_ended, self._started))
        try:
            await self._started.wait()
        except asyncio.CancelledError:
            self.unsubscribe(subscription)
            raise
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        if not self._subscriptions and self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def wake(self) -> None:
        """Something was committed; from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._woken.set)

    def _poll_ended(self, started: asyncio.Event, poll: asyncio.Task[None]) -> None:
        """It is cancelled when nobody listens; that it fails is a bug, and nobody waits for it."""
        if poll.cancelled():
            return
        logger.error("the event outbox is read no more; its streams end", exc_info=poll.exception())
        for subscription in self._subscriptions:
            subscription.end()
        started.set()

    async def _run(self, started: asyncio.Event) -> None:
        self._loop, self._woken = asyncio.get_running_loop(), asyncio.Event()
        while True:
            self._woken.clear()
            try:
                if not started.is_set():
                    await sync_to_async(self._skip_to_now)()
                    started.set()
                for frame in await sync_to_async(self._fetch)():
                    for subscription in list(self._subscriptions):
                        subscription.offer(frame)
            except Error:
                logger.exception("the event outbox could not be read; trying again")
            await asyncio.sleep(PAUSE_S)
            alarm = self._loop.call_later(POLL_INTERVAL_S - PAUSE_S, self._woken.set)
            try:
                await self._woken.wait()
            finally:
                alarm.cancel()

    def _skip_to_now(self) -> None:
        self._delivered = set()
        self._cursor = 0
        self._fetch()

    @returns_connection
    def _fetch(self) -> list[Frame]:
        """What was not delivered yet; of the rest of the overlap only ids are read."""
        settled_before = timezone.now() - OVERLAP
        if self._cursor == 0:
            self._cursor = _newest_settled()
        settled, before = self._cursor, set(self._delivered)
        fresh = []
        recent = Event.objects.filter(id__gt=self._cursor).order_by("id")
        for pk, created_at in recent.values_list("pk", "created_at"):
            if pk not in self._delivered:
                self._delivered.add(pk)
                fresh.append(pk)
            if created_at < settled_before:
                self._cursor = pk
        self._delivered = {pk for pk in self._delivered if pk > self._cursor}
        rows = Event.objects.filter(pk__in=fresh).order_by("id") if fresh else ()
        frames = []
        for event in rows:
            before.add(event.pk)
            place = Place(max(before), missing_of(before, after=settled))
            frames.append(frame_of(event, place))
        return frames


BROADCASTER = Broadcaster()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """An event of `topic` that was not read at `since`; of no topic there is none."""

    topic: str = ""
    since: Place | None = None

    def has_come(self) -> bool:
        """Also if that was before anybody listened."""
        return bool(self.topic and _read_since(frozenset({self.topic}), self.since))


async def stream(
    topics: Iterable[str],
    *,
    place: Place | None,
    ending: Ending = Ending(),
    longest_s: float = math.inf,
) -> AsyncGenerator[bytes, None]:
    """SSE frames of `topics`: what was not read at `place`, then what comes, until `ending` or the
    end of `longest_s`: whoever reads asks again, and is asked."""
    began_s = time.monotonic()
    wanted = frozenset(topics)
    subscription = await BROADCASTER.subscribe(wanted | {ending.topic})
    try:
        yield b"retry: 2000\n\n"
        missed = await sync_to_async(_missed)(wanted, place, ending)
        if missed is None:
            return
        replayed = {frame.pk for frame in missed}
        for frame in missed:
            yield frame.content
        del missed  # the stream may stay open for hours
        while not subscription.is_over and time.monotonic() - began_s < longest_s:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    frame = await subscription.queue.get()
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            if frame.topic in (ending.topic, ""):
                return
            if frame.pk not in replayed:
                yield frame.content
    finally:
        BROADCASTER.unsubscribe(subscription)


@returns_connection
def _missed(topics: frozenset[str], place: Place | None, ending: Ending) -> list[Frame] | None:
    """None: nothing is to be told any more."""
    return None if ending.has_come() else _read_since(topics, place)


def _read_since(topics: frozenset[str], place: Place | None) -> list[Frame]:
    if place is None:
        return []
    settled = _newest_settled()
    recent = Event.objects.filter(id__gt=settled).values_list("pk", flat=True)
    never_came = missing_of(recent, after=settled)
    wanted = Q(id__gt=place.newest) | Q(id__in=place.missing)
    found = list(Event.objects.filter(wanted, topic__in=topics).order_by("id"))
    late = {event.pk for event in found if event.pk < place.newest}
    frames, newest = [], place.newest
    for event in found:
        late.discard(event.pk)
        newest = max(newest, event.pk)
        missing = frozenset(pk for pk in never_came | late if pk < newest)
        frames.append(frame_of(event, Place(newest, missing)))
    return frames


frames_since = returns_connection(_read_since)


def latest_place() -> Place:
    """Of a reader that reads all rows after this."""
    settled = _newest_settled()
    recent = list(Event.objects.filter(id__gt=settled).values_list("pk", flat=True))
    return Place(max(recent, default=settled), missing_of(recent, after=settled))


def _newest_settled() -> int:
    """The newest event before which no other can come any more; 0: there is none."""
    settled = Event.objects.filter(created_at__lt=timezone.now() - OVERLAP).order_by("-id")
    return settled.values_list("pk", flat=True).first() or 0


def frame_of(event: Event, place: Place) -> Frame:
    """One event as an SSE frame; `data` carries its id and topic beside its content. `place`: where
    its reader is then."""
    content_of = {"event_id": event.pk, "topic": event.topic, **event.data}
    data = json.dumps(content_of, separators=(",", ":"))
    content = f"id: {place}\nevent: {event.type}\ndata: {data}\n\n".encode()
    return Frame(pk=event.pk, topic=event.topic, content=content)
