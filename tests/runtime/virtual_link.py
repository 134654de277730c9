"""A scheduler and a reassembly joined by a link in virtual time: same seed, same run, no waiting.

The link sends one thing after another at `bytes_per_s` and each arrives `delay_s` later; acks take
`delay_s` and no rate. What is under way when `cut` is called never arrives. With `restart_bytes`
the kernel lets only so much go after a pause, and twice as much each round trip, as TCP does.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.protocol.link_frames import Ack, Chunk, Probe, ack_of
from runtime.transport.link_scheduler import LinkOptions, LinkScheduler, Transmission
from runtime.transport.reassembly import Bytes, Reassembly

STREAM = 7
_PAUSE_S = 0.2


@dataclass(slots=True, kw_only=True)
class VirtualLink:
    """`decode_due_s`: what the scheduler is told of the next decode."""

    bytes_per_s: float
    delay_s: float
    options: LinkOptions = field(default_factory=LinkOptions)
    decode_due_s: Callable[[float], float | None] = lambda _: None
    fill: Callable[[float], None] = lambda _: None  # asked before each chunk, as lanes do
    now_s: float = 0.0
    scheduler: LinkScheduler = field(init=False)
    reassembly: Reassembly = field(default_factory=Reassembly)
    received: list[tuple[float, bytes, bytes]] = field(default_factory=list)
    decode_latencies_s: list[float] = field(default_factory=list)
    sent_chunks: list[tuple[float, Chunk, int]] = field(default_factory=list)
    restart_bytes: int = 0
    jitter_s: float = 0.0  # most by which a thread is late, at either end
    wakes_late_s: float = 0.0  # likewise when it waits for the moment of the next chunk
    noise: random.Random = field(default_factory=lambda: random.Random(1))
    _kernel: deque[tuple[Transmission, int]] = field(default_factory=deque)
    _kernel_window: float = 0.0
    _kernel_in_flight: int = 0
    _kernel_sent_s: float = float("-inf")
    _alarm: tuple[float, float] = (-1.0, -1.0)  # asked for, and when it rings
    _free_s: float = 0.0
    _last_arrival_s: float = 0.0
    _last_ack_s: float = 0.0
    _delivered_bytes: int = 0
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _streams: "itertools.count[int]" = field(default_factory=lambda: itertools.count(STREAM + 1))

    def __post_init__(self) -> None:
        self.scheduler = LinkScheduler(options=self.options, stream=STREAM)

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
        self._kernel.clear()
        self._kernel_in_flight = 0
        self._free_s = self._last_arrival_s = self._last_ack_s = self.now_s

    def restart_receiver(self) -> None:
        self.cut()
        self.reassembly, self._delivered_bytes = Reassembly(), 0

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
        probe = self.scheduler.probe(now_s=self.now_s)
        if probe is not None:
            self._last_arrival_s = max(self._through(40), self._last_arrival_s)
            self.at(self._last_arrival_s, lambda: self._acknowledge(probe))
        while True:
            self.fill(self.now_s)
            due_s = self.decode_due_s(self.now_s)
            sending = self.scheduler.next(now_s=self.now_s, decode_due_s=due_s)
            if sending is None:
                break
            size = len(sending.head) + memoryview(sending.part).nbytes
            self.sent_chunks.append((self.now_s, sending.chunk, size))
            self._kernel.append((sending, size))
            self._push_out()

    def _push_out(self) -> None:
        """What the kernel lets go of what it was given."""
        if self.now_s - self._kernel_sent_s > _PAUSE_S:
            self._kernel_window = float(self.restart_bytes or "inf")
        while self._kernel and (
            self._kernel_in_flight == 0
            or self._kernel_in_flight + self._kernel[0][1] <= self._kernel_window
        ):
            sending, size = self._kernel.popleft()
            self._kernel_sent_s = self.now_s
            self._kernel_in_flight += size
            arrival_s = max(self._through(size) + self._late_s(), self._last_arrival_s)
            self._last_arrival_s = arrival_s
            self.at(arrival_s, lambda sending=sending, size=size: self._arrive(sending, size))
            self.at(arrival_s + self.delay_s, lambda size=size: self._left_kernel(size))

    def _left_kernel(self, size: int) -> None:
        self._kernel_in_flight -= size
        self._kernel_window += size
        self._push_out()

    def _arrive(self, sending: Transmission, size: int) -> None:
        self._delivered_bytes += size
        whole = self.reassembly.accept(sending.chunk, sending.head, sending.part)
        if whole is not None:
            self.received.append((self.now_s, bytes(whole[0]), bytes(whole[1])))
        self._acknowledge(sending.chunk)

    def _acknowledge(self, answered: Chunk | Probe) -> None:
        ack = ack_of(
            answered,
            expected=self.reassembly.expected(answered.stream),
            delivered_bytes=self._delivered_bytes,
            received_us=round((self.now_s + 1000.0) * 1e6),  # a clock of its own
        )
        self._last_ack_s = max(self.now_s + self.delay_s + self._late_s(), self._last_ack_s)
        self.at(self._last_ack_s, lambda: self._hear(ack))

    def _hear(self, ack: Ack) -> None:
        self.scheduler.on_ack(ack, now_s=self.now_s, new_stream=lambda: next(self._streams))
