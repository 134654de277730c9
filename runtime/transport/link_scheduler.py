"""What a directed link's bulk lane sends, and what of it arrived. Pure.

Decodes go at once on a lane of their own and never wait here; they are only counted (`on_urgent`).
Prompts go in chunks, up to a window of bytes ahead of the receiver's acks. How fast they leave is
TCP's business: `bulk_pace` is the pace it gets (`link_pace`); what the urgent lane uses of the link
is left free. MoLink's Algorithm 1 has the same purpose, that no decode waits behind prompts, but
ends chunks when a decode is due. Decision 0024 says why a pace is better.

What was sent is kept until it is acked (`send_stream`). Times in seconds of one monotonic clock.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from runtime.protocol.control import LinkStats
from runtime.protocol.link_frames import Ack, Chunk, Probe
from runtime.transport.link_pace import LinkPace, TcpLook
from runtime.transport.receive_stream import MAX_PAYLOAD_BYTES, Bytes
from runtime.transport.send_stream import Piece, SendStream, Transmission, random_stream, us

STALLED_S = 2.0  # without an ack of what is under way
LOOK_EVERY_S = 0.005  # at TCP, while prompts are under way
_LEAST_SHARE = 0.1  # of the pace, that prompts have beside any number of decodes
_WINDOW_MARGIN_S = 0.05  # of the rate: chunks that are half sent, and late threads
_URGENT_FADES_S = 0.5
_USUAL_PACKET_BYTES = 1500
_RTT_KEPT_S = 10.0


class RecentRate:
    """Bytes per second of the last moments; link schedulers call it.

    Times in seconds of one clock that does not go back; in `fades_s` a sum fades to 1/e.
    """

    def __init__(self, *, fades_s: float = 2.0) -> None:
        self._fades_s = fades_s
        self._faded_bytes = 0.0
        self._at_s = 0.0

    def add(self, n_bytes: int, *, now_s: float) -> None:
        """So many went."""
        self._faded_bytes = self._left(now_s) + n_bytes
        self._at_s = now_s

    def bytes_per_s(self, now_s: float) -> float:
        """Of the last seconds, the latest most; 0 once nothing went for long."""
        return self._left(now_s) / self._fades_s

    def _left(self, now_s: float) -> float:
        return self._faded_bytes * math.exp(-max(0.0, now_s - self._at_s) / self._fades_s)


class LinkRule(StrEnum):
    """Ours, or for comparison: both lanes without any pace, or one lane, first in first out."""

    SCHEDULED = "scheduled"
    UNSCHEDULED = "unscheduled"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """A chunk has `least_chunk_bytes` to `most_chunk_bytes` and takes the link for `hold_s` where
    that is between them. The window begins with `first_window_bytes` and is never less. More than
    `most_waiting_bytes` are not queued."""

    rule: LinkRule = LinkRule.SCHEDULED
    least_chunk_bytes: int = 16 * 2**10
    most_chunk_bytes: int = 2**20
    hold_s: float = 0.01
    first_window_bytes: int = 64 * 2**10
    most_waiting_bytes: int = 2**30

    def __post_init__(self) -> None:
        if not 0 < self.least_chunk_bytes <= self.most_chunk_bytes:
            raise ValueError(
                f"chunks of {self.least_chunk_bytes} to {self.most_chunk_bytes} bytes; the least "
                "must be above 0 and not above the most"
            )


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    head: bytes
    payload: memoryview
    is_filler: bool
    done: int = 0  # bytes of the payload that were sent


@dataclass(slots=True, kw_only=True)
class LinkCounters:
    """Since the start, as `LinkStats` has them."""

    urgent_bytes_total: int = 0
    urgent_messages_total: int = 0
    bulk_bytes_total: int = 0
    chunks_total: int = 0
    sent_again_total: int = 0  # chunks, and messages of the urgent lane
    filler_bytes_total: int = 0  # to measure what the link does


class LinkScheduler(SendStream):
    """Owns what the bulk lane of a directed link sends; `Lanes` and link measurements call it."""

    def __init__(
        self, options: LinkOptions, *, new_stream: Callable[[], int] = random_stream
    ) -> None:
        super().__init__(new_stream)
        self.options = options
        self.rate = LinkPace()
        self.counters = LinkCounters()
        self.urgent_rate, self.bulk_rate = RecentRate(), RecentRate()
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._opened_bytes = 0  # of the window, since the start or a broken connection
        self._urgent_now = RecentRate(fades_s=_URGENT_FADES_S)
        self._looked_s, self._looked_busy = 0.0, False
        self._tcp_says = False  # what it delivers; else acks do
        self._rtts: deque[tuple[float, float]] = deque()  # of acks: when, falling minima
        self._heard_s = 0.0  # last ack, or when something went after a pause
        self._probed_s = float("-inf")

    @property
    def rtt_s(self) -> float | None:
        """The shortest lately from a chunk or probe to its ack, through all relays on the way;
        TCP knows the way to the first of them only."""
        return self._rtts[0][1] if self._rtts else None

    @property
    def has_waiting(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._queue) or self.has_lost

    @property
    def waiting_bytes(self) -> int:
        """Not sent yet, or lost and to be sent again."""
        return self._queued_bytes + self.lost_bytes

    def has_room(self, n_bytes: int) -> bool:
        """Whether `push` may take that much: always one message, however large."""
        return (
            not self.has_waiting or self.waiting_bytes + n_bytes <= self.options.most_waiting_bytes
        )

    def push(self, head: bytes, payload: Bytes, *, is_filler: bool = False) -> None:
        """Queue a message of prompts, or one that only fills the link."""
        view = memoryview(payload).cast("B") if memoryview(payload).nbytes else memoryview(b"")
        self._queue.append(_Waiting(head=head, payload=view, is_filler=is_filler))
        self._queued_bytes += view.nbytes

    def stats(self, now_s: float) -> LinkStats:
        """What is known of the link."""
        measured_s = self.rate.measured_s
        return LinkStats(
            bandwidth_bytes_per_s=self.rate.bytes_per_s,
            bandwidth_age_s=None if measured_s is None else max(0.0, now_s - measured_s),
            bandwidth_is_floor=self.rate.is_floor,
            rtt_s=self.rtt_s,
            queueing_s=max(0.0, self.rate.queueing_s),
            waiting_bytes=self.waiting_bytes,
            in_flight_bytes=self.in_flight_bytes,
            urgent_bytes_per_s=self.urgent_rate.bytes_per_s(now_s),
            bulk_bytes_per_s=self.bulk_rate.bytes_per_s(now_s),
            stalled=self.is_stalled(now_s),
            **asdict(self.counters),
        )

    def on_urgent(self, n_bytes: int, *, is_again: bool = False, now_s: float) -> None:
        """A decode went on its own lane."""
        self.counters.sent_again_total += is_again
        self.counters.urgent_bytes_total += n_bytes
        self.counters.urgent_messages_total += 1
        self.urgent_rate.add(n_bytes, now_s=now_s)
        self._urgent_now.add(n_bytes, now_s=now_s)

    def next(self, *, now_s: float) -> Transmission | None:
        """The chunk that goes now, if one does. None: ask again after an ack or a push."""
        if not self.has_waiting or not self._room():
            return None
        if not self.in_flight_bytes:
            self._heard_s = now_s
        if self.has_lost:
            self.counters.sent_again_total += 1
            number, piece = self.take_lost()
        else:
            piece = self._cut()
            number = self.add(piece)
        if piece.is_filler:
            self.counters.filler_bytes_total += piece.n_bytes
        else:
            self.counters.bulk_bytes_total += piece.n_bytes
            self.counters.chunks_total += 1
            self.bulk_rate.add(piece.n_bytes, now_s=now_s)
        chunk = Chunk(self.stream, number, piece.offset, piece.payload_bytes, us(now_s))
        return Transmission(chunk, piece)

    def look_is_due(self, now_s: float) -> bool:
        """Whether to ask TCP again what it delivers."""
        return now_s >= self._look_s

    def on_look(self, look: TcpLook | None, *, now_s: float) -> None:
        """What TCP says of the bulk lane's connection; None: nothing, now or ever."""
        self._looked_s, self._looked_busy = now_s, self._is_busy
        self._tcp_says = look is not None
        if look is None:
            return
        if not self._is_busy:
            self.rate.rest(look, now_s=now_s)
            return
        if self.has_waiting:  # more than the window has room for: TCP will not be without
            look = replace(look, unsent_bytes=max(1, look.unsent_bytes))
        urgent = self._urgent_now.bytes_per_s(now_s)
        self.rate.observe(look, other_bytes_per_s=urgent, now_s=now_s)

    def bulk_pace(self, now_s: float) -> float | None:
        """Bytes/s for the bulk lane's connection; None: as fast as it may."""
        pace = self.rate.pace
        if pace is None or self.options.rule is not LinkRule.SCHEDULED:
            return None
        return max(_LEAST_SHARE * pace, pace - self._urgent_now.bytes_per_s(now_s))

    def wake_s(self, *, now_s: float) -> float:
        """When `next` or `probe` has something or a look is due, if nothing happens before."""
        return now_s if self.has_waiting and self._room() else min(self._probe_s, self._look_s)

    def probe(self, *, now_s: float) -> Probe | None:
        """One a second, fewer while nothing is heard: measures the round trip, finds losses.

        Ask before `next`: it goes when nothing that was sent before is in its way.
        """
        if now_s < self._probe_s:
            return None
        self._probed_s = now_s
        return self.ask(Probe, now_s=now_s)

    def is_stalled(self, now_s: float) -> bool:
        """Whether what is under way has not been heard of for long."""
        return self.in_flight_bytes > 0 and now_s - self._heard_s > STALLED_S

    def on_ack(self, ack: Ack, *, now_s: float) -> None:
        """What the receiver has; one that makes no sense is ignored. See `acknowledge`."""
        stream, was_busy, waiting_bytes = self.stream, self._is_busy, self.waiting_bytes
        answered = self.acknowledge(ack, now_s=now_s)
        if answered is None:
            return
        self._heard_s = now_s
        rtt_s = max(0.0, now_s - ack.sent_us * 1e-6)
        self._keep_rtt(rtt_s, now_s)
        if not self._tcp_says:
            look = TcpLook(
                delivered_bytes=ack.delivered_bytes,
                unsent_bytes=waiting_bytes,
                rtt_s=rtt_s,
                packet_bytes=_USUAL_PACKET_BYTES,
                is_held=False,
            )
            if was_busy:
                self.rate.observe(look, other_bytes_per_s=0.0, now_s=now_s)
            else:
                self.rate.rest(look, now_s=now_s)
        self._opened_bytes = 0 if answered.is_lost else self._opened_bytes + answered.n_bytes
        if self.stream != stream and self._queue and self._queue[0].done:
            begun = self._queue[0]
            if all(piece.message is not begun for piece in self.kept):
                self._queue.popleft()  # its beginning went to a receiver that is no more
                self._queued_bytes -= begun.payload.nbytes - begun.done

    def _keep_rtt(self, rtt_s: float, now_s: float) -> None:
        while self._rtts and self._rtts[-1][1] >= rtt_s:
            self._rtts.pop()
        self._rtts.append((now_s, rtt_s))
        while self._rtts[0][0] < now_s - _RTT_KEPT_S:
            self._rtts.popleft()

    @property
    def _probe_s(self) -> float:
        return self._probed_s + self.probe_interval_s

    @property
    def _look_s(self) -> float:
        """Soon while busy and once after, else as often as it is probed."""
        is_soon = self._is_busy or self._looked_busy
        return self._looked_s + LOOK_EVERY_S if is_soon else self._probe_s

    @property
    def _is_busy(self) -> bool:
        return self.in_flight_bytes > 0 or self.has_waiting

    def _room(self) -> bool:
        is_scheduled = self.options.rule is LinkRule.SCHEDULED
        return not is_scheduled or self.in_flight_bytes < self.window_bytes

    @property
    def window_bytes(self) -> float:
        """Bytes that may be under way without an ack: two round trips of them."""
        opened = float(self.options.first_window_bytes + self._opened_bytes)
        rate, rtt_s = self.rate.bytes_per_s, self.rtt_s
        if rate is None or rtt_s is None:
            return opened
        most = 2 * rate * (rtt_s + _WINDOW_MARGIN_S)
        return min(opened, max(most, self.options.first_window_bytes))

    def _chunk_bytes(self) -> int:
        options = self.options
        if options.rule is not LinkRule.SCHEDULED:
            return MAX_PAYLOAD_BYTES
        size = int((self.rate.bytes_per_s or 0.0) * options.hold_s)
        return max(options.least_chunk_bytes, min(size, options.most_chunk_bytes))

    def _cut(self) -> Piece:
        """The next chunk of the oldest message."""
        message, offset = self._queue[0], self._queue[0].done
        head = b"" if offset else message.head
        part = message.payload[offset : offset + self._chunk_bytes()]
        message.done += part.nbytes
        self._queued_bytes -= part.nbytes
        total = message.payload.nbytes
        if message.done == total:
            self._queue.popleft()
        size = len(head) + part.nbytes
        return Piece(head, part, size, offset, total, message, message.is_filler)
