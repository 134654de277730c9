"""The urgent lane of a directed link: nothing is lost, comes twice or out of order. Pure.

Decodes go at once, whatever was answered. But a connection that is given up may have lost what it
carried, or deliver it beside what its successor carries, long after. So messages are numbered, the
receiver takes each only when it is its turn, and the sender keeps them until they are answered:
when one is missing, it and what was sent after it go again. Answers are asked for now and then
only: each one wakes two threads here and two there. A gap is answered unasked. Times in seconds
of one monotonic clock.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from runtime.protocol.link_frames import Ack, Urgent, UrgentProbe
from runtime.transport.reassembly import Bytes

PROBE_INTERVAL_S = 1.0  # without an answer, twice as long each time
MOST_PROBE_INTERVAL_S = 30.0
_ASKS_EVERY_S = 1.0
_ASKS_EVERY_MESSAGES = 64
_ASKS_EVERY_BYTES = 2**20
_STREAMS_KEPT = 16  # of a peer: two of its processes may send for a while, and none forgets its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A message that is to be sent now."""

    urgent: Urgent
    head: bytes
    payload: Bytes

    @property
    def n_bytes(self) -> int:
        return len(self.head) + memoryview(self.payload).nbytes


class UrgentLane:
    """The sending end, owned by an `UrgentConnection`. `stream` is a number no other sender of the
    peer uses (32 bits); `most_kept` messages may wait for an answer."""

    def __init__(self, *, stream: int, most_kept: int) -> None:
        self.stream = stream
        self.most_kept = most_kept
        self._kept: deque[Numbered] = deque()  # not answered yet
        self._sequence = 0
        self._unasked_messages = self._unasked_bytes = 0  # sent since the last that asked
        self._asked_s = float("-inf")
        self._sent_s = 0.0  # anything
        self._probe_interval_s = PROBE_INTERVAL_S
        self._went_back_us = 0

    @property
    def is_full(self) -> bool:
        """Whether so many wait for an answer that no more are taken."""
        return len(self._kept) >= self.most_kept

    @property
    def probe_s(self) -> float:
        """When `probe` has something, unless something is sent or all is answered before."""
        return self._sent_s + self._probe_interval_s if self._kept else float("inf")

    def number(self, head: bytes, payload: Bytes, *, now_s: float) -> Numbered:
        """The next message, which is to be sent before any other is numbered."""
        self._unasked_messages += 1
        self._unasked_bytes += memoryview(payload).nbytes
        asks = (
            now_s - self._asked_s >= _ASKS_EVERY_S
            or self._unasked_messages >= _ASKS_EVERY_MESSAGES
            or self._unasked_bytes >= _ASKS_EVERY_BYTES
        )
        numbered = self._numbered(self._sequence, head, payload, asks=asks, now_s=now_s)
        self._sequence += 1
        self._kept.append(numbered)
        return numbered

    def probe(self, *, now_s: float) -> UrgentProbe | None:
        """Asks what came, if nobody has said so for long; fewer while nothing is heard."""
        if now_s < self.probe_s:
            return None
        self._sent_s = now_s
        self._probe_interval_s = min(2 * self._probe_interval_s, MOST_PROBE_INTERVAL_S)
        return UrgentProbe(stream=self.stream, sequence=self._sequence, sent_us=_us(now_s))

    def on_ack(
        self, ack: Ack, *, now_s: float, new_stream: Callable[[], int]
    ) -> tuple[Numbered, ...]:
        """What is to be sent again now, in that order: what the receiver misses and all after it.

        One of another stream or beyond what was sent is ignored. A receiver that misses what is no
        longer kept was started anew: it gets all that is, as a stream from `new_stream`.
        """
        if ack.stream != self.stream or ack.expected > self._sequence:
            return ()
        self._probe_interval_s = PROBE_INTERVAL_S
        oldest = self._kept[0].urgent.sequence if self._kept else self._sequence
        while self._kept and self._kept[0].urgent.sequence < ack.expected:
            self._kept.popleft()
        if ack.expected >= ack.follows or ack.sent_us < self._went_back_us:
            return ()
        self._went_back_us = _us(now_s)
        first = ack.expected
        if ack.expected < oldest:
            self.stream, self._sequence, first = new_stream(), len(self._kept), 0
        last = first + len(self._kept) - 1
        self._kept = deque(
            self._numbered(sequence, one.head, one.payload, asks=sequence == last, now_s=now_s)
            for sequence, one in enumerate(self._kept, first)
        )
        return tuple(self._kept)

    def _numbered(
        self, sequence: int, head: bytes, payload: Bytes, *, asks: bool, now_s: float
    ) -> Numbered:
        self._sent_s = now_s
        if asks:
            self._asked_s, self._unasked_messages, self._unasked_bytes = now_s, 0, 0
        urgent = Urgent(stream=self.stream, sequence=sequence, sent_us=_us(now_s), asks=asks)
        return Numbered(urgent=urgent, head=head, payload=payload)


class UrgentOrder:
    """The receiving end, of one peer: whose turn it is in each of its streams."""

    def __init__(self) -> None:
        self.out_of_turn = 0  # messages that came again or too early, since the start
        self._expected: OrderedDict[int, int] = OrderedDict()  # by stream, the latest used last

    def accept(self, urgent: Urgent) -> bool:
        """Whether the message is the next; another leaves nothing behind."""
        if urgent.sequence != self.expected(urgent.stream):
            self.out_of_turn += 1
            return False
        self._expected[urgent.stream] = urgent.sequence + 1
        self._expected.move_to_end(urgent.stream)
        if len(self._expected) > _STREAMS_KEPT:
            self._expected.popitem(last=False)
        return True

    def expected(self, stream: int) -> int:
        """Of an unknown stream nothing was had."""
        return self._expected.get(stream, 0)


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
