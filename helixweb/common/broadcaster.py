"""Fans the event outbox out to every open stream of this process; one database poll for all.

Rows may commit out of id order, so each reader, the poll too, has a `Place`: the newest event that
it has read and the ids before it that may still come. A stream that reconnects with Last-Event-ID,
which is a `Place`, is replayed from the table.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial

from asgiref.sync import sync_to_async
from django.db import Error, connections
from django.db.models import Q
from django.utils import timezone

from helixweb.common.connections import keeps_connection, returns_connection
from helixweb.common.event_place import START, Place, missing_of
from helixweb.common.models import Event

logger = logging.getLogger(__name__)

# Longest delay of events of other processes; events of this one wake the poll.
POLL_INTERVAL_S = 0.1
# Between two polls, however many events are emitted.
PAUSE_S = 0.02
KEEP_ALIVE_S = 15.0
# How long a transaction may stay open after its insert and still be seen.
OVERLAP = timedelta(seconds=10)
QUEUE_LENGTH = 1000


@dataclass(frozen=True)
class Frame:
    """An event, and where its reader is then."""

    event: Event
    place: Place

    @cached_property
    def content(self) -> bytes:
        """The bytes to send, made once for all streams; `data` has the event's id and topic."""
        event = self.event
        content_of = {"event_id": event.pk, "topic": event.topic, **event.data}
        data = json.dumps(content_of, separators=(",", ":"))
        return f"id: {self.place}\nevent: {event.type}\ndata: {data}\n\n".encode()


class Subscription:
    """One open stream: its topics and what waits to be written to it."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        # None: nothing will come any more.
        self.queue: asyncio.Queue[Frame | None] = asyncio.Queue(QUEUE_LENGTH)
        self.is_over = False

    def offer(self, frame: Frame) -> None:
        if frame.event.topic not in self.topics or self.is_over:
            return
        try:
            self.queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.is_over = True  # the stream ends; its client reconnects and replays

    def end(self) -> None:
        """End the subscription and wake its readers."""
        self.is_over = True
        if self.queue.empty():
            self.queue.put_nowait(None)


class Broadcaster:
    """Polls while anyone listens, and at once when woken."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._poll: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._started = asyncio.Event()

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
        """Read committed events now; may be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._woken.set)

    def end_all(self) -> None:
        """End every open stream; their readers come again."""
        for subscription in self._subscriptions:
            subscription.end()

    def _poll_ended(self, started: asyncio.Event, poll: asyncio.Task[None]) -> None:
        """It is cancelled when no stream is open; a failure is a bug that nothing else sees."""
        if poll.cancelled():
            return
        logger.error("the event outbox is read no more; its streams end", exc_info=poll.exception())
        self.end_all()
        started.set()

    async def _run(self, started: asyncio.Event) -> None:
        self._loop, self._woken = asyncio.get_running_loop(), asyncio.Event()
        # Its connection is open as long as it polls: to open one takes more than to look.
        thread = ThreadPoolExecutor(1, thread_name_prefix="events")
        read = partial(self._loop.run_in_executor, thread)
        place = None
        try:
            while True:
                self._woken.clear()
                try:
                    if place is None:
                        place = await read(keeps_connection(latest_place))
                        started.set()
                    for frame in await read(keeps_connection(frames_since), None, place):
                        place = frame.place
                        for subscription in list(self._subscriptions):
                            subscription.offer(frame)
                except Error:
                    logger.exception("the event outbox could not be read; trying again")
                await self._pause()
        finally:
            thread.submit(connections.close_all)
            thread.shutdown(wait=False)

    async def _pause(self) -> None:
        """Return when woken, or when the next poll is due."""
        await asyncio.sleep(PAUSE_S)
        alarm = asyncio.get_running_loop().call_later(POLL_INTERVAL_S - PAUSE_S, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            alarm.cancel()


BROADCASTER = Broadcaster()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The event that ends a stream: the first of `topic` after `since`; never without a topic."""

    topic: str = ""
    since: Place = START

    def has_come(self) -> bool:
        """True if the ending event was committed, even before the stream was open."""
        return bool(self.topic and frames_since(frozenset({self.topic}), self.since))


async def stream(
    topics: Iterable[str],
    *,
    place: Place | None,
    ending: Ending = Ending(),
    longest_s: float = math.inf,
) -> AsyncGenerator[bytes, None]:
    """SSE frames of `topics`: events after `place`, then new ones, until `ending` or `longest_s`.
    Then the reader reconnects, and its rights are checked again."""
    began_s = time.monotonic()
    wanted = frozenset(topics)
    subscription = await BROADCASTER.subscribe(wanted | {ending.topic})
    try:
        yield b"retry: 2000\n\n"
        missed = await sync_to_async(returns_connection(_missed))(wanted, place, ending)
        if missed is None:
            return
        replayed = {frame.event.pk for frame in missed}
        for frame in missed:
            yield frame.content
        del missed  # the stream may stay open for hours
        while not subscription.is_over and time.monotonic() - began_s < longest_s:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    came = await subscription.queue.get()
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            if came is None or came.event.topic == ending.topic:
                return
            if came.event.pk not in replayed:
                yield came.content
    finally:
        BROADCASTER.unsubscribe(subscription)


def _missed(topics: frozenset[str], place: Place | None, ending: Ending) -> list[Frame] | None:
    """Events since `place`; None: the stream has ended."""
    return None if ending.has_come() else frames_since(topics, place)


def frames_since(topics: frozenset[str] | None, place: Place | None) -> list[Frame]:
    """Events after `place`, of these topics or of all (None); empty without a place."""
    if place is None:
        return []
    rows = Event.objects.filter(Q(id__gt=place.newest) | Q(id__in=place.missing)).order_by("id")
    found = list(rows if topics is None else rows.filter(topic__in=topics))
    if not found:
        return []
    settled = _newest_settled()
    recent = Event.objects.filter(id__gt=settled).values_list("pk", flat=True)
    never_came = missing_of(recent, after=settled)
    late = {event.pk for event in found if event.pk < place.newest}
    frames, newest = [], place.newest
    for event in found:
        late.discard(event.pk)
        newest = max(newest, event.pk)
        missing = frozenset(pk for pk in never_came | late if pk < newest)
        frames.append(Frame(event, Place(newest, missing)))
    return frames


def latest_place() -> Place:
    """The place of a reader that reads all rows after this call."""
    settled = _newest_settled()
    recent = list(Event.objects.filter(id__gt=settled).values_list("pk", flat=True))
    return Place(max(recent, default=settled), missing_of(recent, after=settled))


def _newest_settled() -> int:
    """The newest event before which no other can come any more; 0: there is none."""
    settled = Event.objects.filter(created_at__lt=timezone.now() - OVERLAP).order_by("-id")
    return settled.values_list("pk", flat=True).first() or 0
