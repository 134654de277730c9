"""What a directed link's bulk lane sends, and when: MoLink's Algorithm 1 on real sockets. Pure.

Decodes go at once on a lane of their own and never wait here; they are only told of (`on_urgent`).
Prompts wait here and go in chunks, each small enough to be through when the next decode is due
(§4.2), not before the link has sent what went before at the measured rate (else chunks only pile up
in the kernel), and never more than a window of bytes ahead of the receiver's acks. That begins
small and doubles each round trip, as TCP's own does: more would wait in the kernel and come as one
burst, for decodes to wait behind. After a pause it begins with a half. W counts decodes that
went while prompts waited; at N the next chunk is as large as may be and waits for no pace. The
paper sends the whole rest then, which `WhenStarved.WHOLE_REMAINDER` does.

What was sent is kept until it is acked: a connection that broke lost what was under way, and the
sender goes back to the sequence the receiver expects. Times in seconds of one monotonic clock.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from runtime.protocol.link_frames import Ack, Chunk, Probe
from runtime.transport.delivery_rate import DeliveryRate
from runtime.transport.reassembly import Bytes
from runtime.transport.recent_rate import RecentRate

STALLED_S = 2.0  # without an ack of what is under way
PROBE_INTERVAL_S = 1.0
MOST_PROBE_INTERVAL_S = 30.0
PAUSE_S = 0.2  # TCP's least timeout, after which its window begins small again
_KEPT = 0.5  # of ours, so long a pause: TCP's opens by the time that the rest waits for
_CATCH_UP_S = 0.005  # more would come as a burst that decodes wait behind
_MICRO = 1e6


class WhenStarved(StrEnum):
    """What goes once N decodes went before a prompt that waits."""

    LARGEST_CHUNK = "largest_chunk"
    WHOLE_REMAINDER = "whole_remainder"


class LinkRule(StrEnum):
    """Ours, or for comparison: both lanes without any order, or one lane, first in first out."""

    SCHEDULED = "scheduled"
    UNSCHEDULED = "unscheduled"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """`starvation_bound` is N. A chunk has `least_chunk_bytes` to `most_chunk_bytes` and takes the
    link for at most `hold_s`. The window begins with `first_window_bytes` and is never less. More
    than `most_waiting_bytes` are not queued."""

    rule: LinkRule = LinkRule.SCHEDULED
    starvation_bound: int = 30
    when_starved: WhenStarved = WhenStarved.LARGEST_CHUNK
    least_chunk_bytes: int = 16 * 2**10
    most_chunk_bytes: int = 2**20
    hold_s: float = 0.01
    first_window_bytes: int = 64 * 2**10
    most_waiting_bytes: int = 2**30

    def __post_init__(self) -> None:
        if self.starvation_bound < 1:
            raise ValueError(f"starvation_bound {self.starvation_bound} must be at least 1")
        if not 0 < self.least_chunk_bytes <= self.most_chunk_bytes:
            raise ValueError(
                f"chunks of {self.least_chunk_bytes} to {self.most_chunk_bytes} bytes; the least "
                "must be above 0 and not above the most"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transmission:
    """A chunk that is to be sent now; `head` is empty but for the first of its message."""

    chunk: Chunk
    head: bytes
    part: Bytes


@dataclass(slots=True, kw_only=True)
class _Waiting:
    head: bytes
    payload: memoryview
    is_filler: bool
    done: int = 0  # bytes of the payload that were sent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    sequence: int
    message: _Waiting
    offset: int
    size: int
    has_more: bool = False  # waiting when it was sent

    @property
    def head(self) -> bytes:
        return self.message.head if self.offset == 0 else b""

    @property
    def n_bytes(self) -> int:
        return len(self.head) + self.size


@dataclass(slots=True, kw_only=True)
class LinkCounters:
    """Since the start."""

    urgent_bytes: int = 0
    urgent_messages: int = 0
    bulk_bytes: int = 0
    chunks: int = 0
    starved: int = 0  # times the bound was reached
    sent_again: int = 0  # chunks, and messages of the urgent lane
    filler_bytes: int = 0  # to measure what the link does
    longest_wait_decodes: int = 0


@dataclass(slots=True)
class LinkScheduler:
    """One directed link. `stream` is a number no other sender of the peer uses (32 bits)."""

    options: LinkOptions
    stream: int
    rate: DeliveryRate = field(default_factory=DeliveryRate)
    counters: LinkCounters = field(default_factory=LinkCounters)
    urgent_rate: RecentRate = field(default_factory=RecentRate)
    bulk_rate: RecentRate = field(default_factory=RecentRate)
    waiting_bytes: int = 0  # not sent yet, or lost and to be sent again
    in_flight_bytes: int = 0  # sent and not acked
    _queue: deque[_Waiting] = field(default_factory=deque)
    _sent: deque[_Sent] = field(default_factory=deque)
    _again: deque[_Sent] = field(default_factory=deque)  # lost with a connection
    _opened_bytes: int = 0  # of the window, since the start or a pause
    _sequence: int = 0
    _weight: int = 0  # W
    _free_s: float = 0.0  # when the link will have sent what it was given
    _is_held: bool = False  # only by that: a thread that wakes late for it may make up for it
    _heard_s: float | None = None  # last ack, or when something went after a pause
    _probed_s: float = float("-inf")
    _probe_interval_s: float = PROBE_INTERVAL_S
    _went_back_us: int = 0

    @property
    def has_waiting(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._queue or self._again)

    def has_room(self, n_bytes: int) -> bool:
        """Whether `push` may take that much: always one message, however large."""
        return (
            not self.has_waiting or self.waiting_bytes + n_bytes <= self.options.most_waiting_bytes
        )

    def push(self, head: bytes, payload: Bytes, *, is_filler: bool = False) -> None:
        """Queue a message of prompts, or one that only fills the link."""
        view = memoryview(payload).cast("B") if memoryview(payload).nbytes else memoryview(b"")
        self._queue.append(_Waiting(head=head, payload=view, is_filler=is_filler))
        self.waiting_bytes += view.nbytes

    def on_urgent(self, n_bytes: int, *, now_s: float) -> None:
        """A decode went on its own lane (Algorithm 1, lines 10-14)."""
        self.counters.urgent_bytes += n_bytes
        self.counters.urgent_messages += 1
        self.urgent_rate.add(n_bytes, now_s=now_s)
        pace = self.rate.pace(now_s) if self.has_waiting else self.rate.pace_now
        self._occupy(n_bytes, pace, now_s)
        if self.has_waiting and self._room():
            self._weight += 1
            self.counters.longest_wait_decodes = max(
                self.counters.longest_wait_decodes, self._weight
            )

    def next(self, *, now_s: float, decode_due_s: float | None) -> Transmission | None:
        """The chunk that goes now, if one does. `decode_due_s`: when a decode will want the link.

        None: ask again at `wake_s`, or after an ack or a push.
        """
        if not self.has_waiting or not self._room():
            self._is_held = False
            return None
        starved = self._weight >= self.options.starvation_bound
        if self._is_scheduled and not starved and now_s < self._free_s:
            self._is_held = True
            return None
        if self._again:
            self.counters.sent_again += 1
            sent = self._again.popleft()
            self.waiting_bytes -= sent.n_bytes
            return self._send(sent, now_s)
        message = self._queue[0]
        left = message.payload.nbytes - message.done
        size = min(left, self._chunk_bytes(left, now_s, decode_due_s, starved=starved))
        sent = _Sent(sequence=self._sequence, message=message, offset=message.done, size=size)
        self._sequence += 1
        self.waiting_bytes -= size
        message.done += size
        if message.done == message.payload.nbytes:
            self._queue.popleft()
        return self._send(sent, now_s)

    def wake_s(self, *, now_s: float) -> float:
        """When `next` or `probe` has something, if nothing happens before."""
        moments = [self._probe_s]
        if self.has_waiting and self._room():
            starved = self._weight >= self.options.starvation_bound
            moments.append(now_s if starved or not self._is_scheduled else self._free_s)
        return min(moments)

    def probe(self, *, now_s: float) -> Probe | None:
        """One a second, fewer while nothing is heard: measures the round trip, finds losses.

        Ask before `next`: it goes when nothing that was sent before is in its way.
        """
        if now_s < self._probe_s:
            return None
        self._probed_s = now_s
        self._probe_interval_s = min(2 * self._probe_interval_s, MOST_PROBE_INTERVAL_S)
        comes_next = self._again[0].sequence if self._again else self._sequence
        return Probe(stream=self.stream, sequence=comes_next, sent_us=_us(now_s))

    def is_stalled(self, now_s: float) -> bool:
        """Whether what is under way has not been heard of for long."""
        return bool(self._sent and self._heard_s is not None and now_s - self._heard_s > STALLED_S)

    def on_ack(self, ack: Ack, *, now_s: float, new_stream: Callable[[], int]) -> None:
        """What the receiver has; one of another stream or beyond what was sent is ignored.

        If it misses something, go back to that. If it misses what is no longer kept, it was started
        anew: a stream from `new_stream` begins with the first message of which nothing was acked.
        """
        if ack.stream != self.stream or ack.expected > self._sequence:
            return
        self._heard_s = now_s
        self._probe_interval_s = PROBE_INTERVAL_S
        kept = self._sent or self._again
        oldest = kept[0].sequence if kept else self._sequence
        acked_bytes, has_more = 0, False
        while self._sent and self._sent[0].sequence < ack.expected:
            acked_bytes, has_more = self._sent[0].n_bytes, self._sent[0].has_more
            self.in_flight_bytes -= acked_bytes
            self._opened_bytes += acked_bytes
            self._sent.popleft()
        self.rate.on_ack(
            sent_s=ack.sent_us / _MICRO,
            received_s=ack.received_us / _MICRO,
            delivered_bytes=ack.delivered_bytes,
            chunk_bytes=acked_bytes,
            has_more=has_more,
            now_s=now_s,
        )
        if ack.expected < ack.follows and ack.sent_us >= self._went_back_us:
            self._went_back_us = _us(now_s)
            self._take_back()
            if ack.expected < oldest:
                self._begin_stream(new_stream())

    @property
    def _probe_s(self) -> float:
        due_s = self._probed_s + self._probe_interval_s
        return due_s if math.isinf(due_s) else min(max(due_s, self._free_s), due_s + PAUSE_S)

    @property
    def _is_scheduled(self) -> bool:
        return self.options.rule is LinkRule.SCHEDULED

    def _room(self) -> bool:
        return not self._is_scheduled or self.in_flight_bytes < self.window_bytes

    @property
    def window_bytes(self) -> float:
        """Bytes that may be under way without an ack."""
        opened = float(self.options.first_window_bytes + self._opened_bytes)
        full = self.rate.window_bytes
        return opened if full is None else min(opened, max(full, self.options.first_window_bytes))

    def _chunk_bytes(
        self, left: int, now_s: float, decode_due_s: float | None, *, starved: bool
    ) -> int:
        options = self.options
        if not self._is_scheduled:
            return left
        if starved and options.when_starved is WhenStarved.WHOLE_REMAINDER:
            return left
        rate = self.rate.bytes_per_s
        if rate is None:
            return options.least_chunk_bytes
        available_s = options.hold_s
        if decode_due_s is not None and not starved:
            available_s = min(available_s, decode_due_s - now_s)
        size = int(rate * available_s)
        return max(options.least_chunk_bytes, min(size, options.most_chunk_bytes))

    def _send(self, sent: _Sent, now_s: float) -> Transmission:
        message = sent.message
        if self._weight >= self.options.starvation_bound:
            self.counters.starved += 1
        self._weight = 0
        if not self._sent:
            if self._heard_s is not None and now_s - self._heard_s > PAUSE_S:
                self._opened_bytes = min(self._opened_bytes, int(_KEPT * self.window_bytes))
            self._heard_s = now_s
        sent = replace(sent, has_more=message.is_filler or self.has_waiting)
        self._sent.append(sent)
        self.in_flight_bytes += sent.n_bytes
        if message.is_filler:
            self.counters.filler_bytes += sent.n_bytes
        else:
            self.counters.bulk_bytes += sent.n_bytes
            self.counters.chunks += 1
            self.bulk_rate.add(sent.n_bytes, now_s=now_s)
        self._occupy(sent.n_bytes, self.rate.pace(now_s), now_s)
        return Transmission(
            chunk=Chunk(
                stream=self.stream,
                sequence=sent.sequence,
                offset=sent.offset,
                payload_bytes=message.payload.nbytes,
                sent_us=_us(now_s),
            ),
            head=sent.head,
            part=message.payload[sent.offset : sent.offset + sent.size],
        )

    def _occupy(self, n_bytes: int, pace: float | None, now_s: float) -> None:
        if pace is not None:
            may_begin_s = now_s - _CATCH_UP_S if self._is_held else now_s
            self._free_s = max(self._free_s, may_begin_s) + n_bytes / pace

    def _take_back(self) -> None:
        """Send again all that was not acked, in the same chunks: some may have arrived yet."""
        self._again.extendleft(reversed(self._sent))
        self.in_flight_bytes -= sum(sent.n_bytes for sent in self._sent)
        self.waiting_bytes += sum(sent.n_bytes for sent in self._sent)
        self._sent.clear()
        self._opened_bytes = 0

    def _begin_stream(self, stream: int) -> None:
        """Forget messages whose beginning went to a receiver that is no more; number anew."""
        begun = {id(sent.message) for sent in self._again if sent.offset == 0}
        kept = [sent for sent in self._again if id(sent.message) in begun]
        self.waiting_bytes -= sum(sent.n_bytes for sent in self._again)
        self.waiting_bytes += sum(sent.n_bytes for sent in kept)
        self._again = deque(replace(sent, sequence=sequence) for sequence, sent in enumerate(kept))
        if self._queue and self._queue[0].done and id(self._queue[0]) not in begun:
            lost = self._queue.popleft()
            self.waiting_bytes -= lost.payload.nbytes - lost.done
        self.stream, self._sequence = stream, len(kept)


def _us(seconds: float) -> int:
    return round(seconds * _MICRO)
