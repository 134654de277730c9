"""A scheduler and a receiver joined by a link in virtual time: same seed, same run, no waiting.

The link sends one packet after another at `bytes_per_s` and each arrives `delay_s` later; acks take
`delay_s` and no rate. What is under way when `cut` is called never arrives. TCP sends at the
scheduler's pace. With `restart_bytes` it lets only so much go after a pause, and twice as much each
round trip. Without `tcp_says` it is not asked and not paced, as on systems other than Linux.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from runtime.protocol.link_frames import Ack, Chunk, Probe, ack_of
from runtime.transport.link_pace import TcpLook
from runtime.transport.link_scheduler import LinkOptions, LinkScheduler
from runtime.transport.receive_stream import Bytes, ReceiveStreams
from runtime.transport.send_stream import Transmission

STREAM = 7
PACKET_BYTES = 8_960
_PAUSE_S = 0.2


@dataclass(slots=True, kw_only=True)
class VirtualLink:
    """A sender, a receiver, and TCP on a line between them."""

    bytes_per_s: float
    delay_s: float
    options: LinkOptions = field(default_factory=LinkOptions)
    fill: Callable[[float], None] = lambda _: None  # asked before each chunk, as lanes do
    now_s: float = 0.0
    scheduler: LinkScheduler = field(init=False)
    streams: ReceiveStreams = field(default_factory=ReceiveStreams)
    received: list[tuple[float, bytes, bytes]] = field(default_factory=list)
    decode_latencies_s: list[float] = field(default_factory=list)
    sent_chunks: list[tuple[float, Chunk, int]] = field(default_factory=list)
    restart_bytes: int = 0
    jitter_s: float = 0.0  # most by which the receiver's thread is late with an ack
    wakes_late_s: float = 0.0  # likewise the sender's, with a look at TCP
    noise: random.Random = field(default_factory=lambda: random.Random(1))
    tcp_says: bool = True
    _unsent: deque[tuple[int, Callable[[], None] | None]] = field(default_factory=deque)  # packets
    _unsent_bytes: int = 0
    _tcp_window: float = 0.0
    _tcp_in_flight: int = 0
    _tcp_delivered: int = 0
    _tcp_sent_s: float = float("-inf")
    _tcp_next_s: float = 0.0  # when the pace lets the next packet go
    _tcp_waits: bool = False  # for that moment
    _tcp_rtt_s: float = field(init=False)  # smoothed; first that of the handshake
    _alarm: tuple[float, float] = (-1.0, -1.0)  # asked for, and when it rings
    _free_s: float = 0.0
    _last_arrival_s: float = 0.0
    _last_ack_s: float = 0.0
    _delivered_bytes: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.scheduler = LinkScheduler(self.options, new_stream=itertools.count(STREAM).__next__)
        self._tcp_rtt_s = 2 * self.delay_s

    def at(self, moment_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment_s, next(self._numbers), do))

    def send_prompt(self, head: bytes, payload: Bytes) -> None:
        self.scheduler.push(head, payload)
        self._serve()

    def send_decode(self, n_bytes: int) -> None:
        since_s = self.now_s
        self.scheduler.on_urgent(n_bytes, now_s=since_s)
        arrival_s = self._through(n_bytes)

        def arrive() -> None:
            self._delivered_bytes += n_bytes
            self.decode_latencies_s.append(self.now_s - since_s)

        self.at(arrival_s, arrive)
        self._serve()

    def cut(self) -> None:
        """A connection breaks: what is under way is lost both ways; the receiver stays."""
        self._events = []
        self._unsent.clear()
        self._unsent_bytes = self._tcp_in_flight = self._tcp_delivered = 0
        self._tcp_waits, self._tcp_rtt_s = False, 2 * self.delay_s
        self._free_s = self._last_arrival_s = self._last_ack_s = self.now_s

    def restart_receiver(self) -> None:
        self.cut()
        self.streams, self._delivered_bytes = ReceiveStreams(), 0

    def run(self, *, until_s: float) -> None:
        while True:
            self._serve()
            wake_s = self._woken_s(self.scheduler.wake_s(now_s=self.now_s))
            event_s = self._events[0][0] if self._events else float("inf")
            moment_s = min(wake_s, event_s)
            if moment_s > until_s:
                self.now_s = until_s
                return
            self.now_s = max(self.now_s, moment_s)
            if event_s <= moment_s:
                heapq.heappop(self._events)[2]()

    def _woken_s(self, asked_s: float) -> float:
        """When a thread that wants to wake at `asked_s` does; the same until it has."""
        if asked_s != self._alarm[0]:
            late_s = self.noise.random() * self.wakes_late_s if self.wakes_late_s else 0.0
            self._alarm = (asked_s, asked_s + late_s)
        return max(self._alarm[1], self.now_s + 1e-6)

    def _late_s(self) -> float:
        return self.noise.random() * self.jitter_s

    def _through(self, n_bytes: int) -> float:
        """When it arrives."""
        self._free_s = max(self._free_s, self.now_s) + n_bytes / self.bytes_per_s
        return self._free_s + self.delay_s

    def _serve(self) -> None:
        if self.scheduler.look_is_due(self.now_s):
            self.scheduler.on_look(self._look(), now_s=self.now_s)
            self._push_out()
        probe = self.scheduler.probe(now_s=self.now_s)
        if probe is not None:
            self._give_tcp(40, lambda: self._acknowledge(probe))
        while True:
            self.fill(self.now_s)
            sending = self.scheduler.next(now_s=self.now_s)
            if sending is None:
                break
            size = len(sending.piece.head) + memoryview(sending.piece.part).nbytes
            self.sent_chunks.append((self.now_s, sending.header, size))
            self._give_tcp(size, partial(self._arrive, sending))

    def _give_tcp(self, size: int, arrive: Callable[[], None]) -> None:
        full, rest = divmod(size, PACKET_BYTES)
        packets = [PACKET_BYTES] * full + [rest] * (rest > 0 or not full)
        self._unsent.extend((packet, None) for packet in packets[:-1])
        self._unsent.append((packets[-1], arrive))
        self._unsent_bytes += size
        self._push_out()

    def _look(self) -> TcpLook | None:
        if not self.tcp_says:
            return None
        return TcpLook(
            delivered_bytes=self._tcp_delivered,
            unsent_bytes=self._unsent_bytes,
            rtt_s=self._tcp_rtt_s,
            packet_bytes=PACKET_BYTES,
            is_held=self._tcp_in_flight + PACKET_BYTES > self._tcp_window,
        )

    def _push_out(self) -> None:
        """What TCP lets go of what it was given."""
        if self.now_s - self._tcp_sent_s > _PAUSE_S:
            self._tcp_window = float(self.restart_bytes or "inf")
        pace = self.scheduler.bulk_pace(self.now_s) if self.tcp_says else None
        while self._unsent and (
            self._tcp_in_flight == 0 or self._tcp_in_flight + self._unsent[0][0] <= self._tcp_window
        ):
            if pace is not None and self.now_s < self._tcp_next_s:
                if not self._tcp_waits:
                    self._tcp_waits = True
                    self.at(self._tcp_next_s, self._push_on)
                return
            size, arrive = self._unsent.popleft()
            self._unsent_bytes -= size
            self._tcp_in_flight += size
            self._tcp_sent_s = self.now_s
            if pace is not None:
                self._tcp_next_s = max(self._tcp_next_s, self.now_s) + size / pace
            arrival_s = max(self._through(size), self._last_arrival_s)
            self._last_arrival_s = arrival_s
            if arrive is not None:
                self.at(arrival_s, arrive)
            since_s = self.now_s
            self.at(
                arrival_s + self.delay_s,
                partial(self._tcp_acked, size, since_s),
            )

    def _push_on(self) -> None:
        self._tcp_waits = False
        self._push_out()

    def _tcp_acked(self, size: int, since_s: float) -> None:
        self._smooth_rtt(since_s)
        self._tcp_delivered += size
        self._tcp_in_flight -= size
        self._tcp_window += size
        self._push_out()

    def _smooth_rtt(self, since_s: float) -> None:
        self._tcp_rtt_s += (self.now_s - since_s - self._tcp_rtt_s) / 8

    def _arrive(self, sending: Transmission) -> None:
        self._delivered_bytes += len(sending.piece.head) + memoryview(sending.piece.part).nbytes
        whole = self.streams.accept(sending.header, sending.piece.head, sending.piece.part)
        if whole is not None:
            self.received.append((self.now_s, bytes(whole[0]), bytes(whole[1])))
        self._acknowledge(sending.header)

    def _acknowledge(self, answered: Chunk | Probe) -> None:
        ack = ack_of(
            answered,
            expected=self.streams.expected(answered.stream),
            delivered_bytes=self._delivered_bytes,
        )
        self._last_ack_s = max(self.now_s + self.delay_s + self._late_s(), self._last_ack_s)
        self.at(self._last_ack_s, lambda: self._hear(ack))

    def _hear(self, ack: Ack) -> None:
        self.scheduler.on_ack(ack, now_s=self.now_s)
