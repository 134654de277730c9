"""The urgent lane of a directed link: nothing is lost, comes twice or out of order. Pure.

Decodes go at once, whatever was answered, as pieces of a `SendStream` that are whole messages.
Answers are asked for now and then only: each one wakes two threads here and two there. A gap is
answered unasked. Times in seconds of one monotonic clock.
"""

from collections.abc import Callable

from runtime.protocol.link_frames import Ack, Urgent, UrgentProbe
from runtime.transport.receive_stream import Bytes
from runtime.transport.send_stream import Piece, SendStream, Transmission, random_stream, us

_ASKS_EVERY_S = 1.0
_ASKS_EVERY_MESSAGES = 64
_ASKS_EVERY_BYTES = 2**20


class UrgentLane(SendStream):
    """The sending end, owned by an `UrgentConnection`. `most_kept` messages may wait for an
    answer."""

    def __init__(self, *, most_kept: int, new_stream: Callable[[], int] = random_stream) -> None:
        super().__init__(new_stream)
        self.most_kept = most_kept
        self._unasked_messages = self._unasked_bytes = 0  # sent since the last that asked
        self._asked_s = float("-inf")
        self._sent_s = 0.0  # anything

    @property
    def is_full(self) -> bool:
        """Whether so many wait for an answer that no more are taken."""
        return len(self.kept) >= self.most_kept

    @property
    def probe_s(self) -> float:
        """When `probe` has something, unless something is sent or all is answered before."""
        return self._sent_s + self.probe_interval_s if self.kept else float("inf")

    def number(self, head: bytes, payload: Bytes, *, now_s: float) -> Transmission:
        """The next message, which is to be sent before any other is numbered."""
        size = memoryview(payload).nbytes
        self._unasked_messages += 1
        self._unasked_bytes += size
        asks = (
            now_s - self._asked_s >= _ASKS_EVERY_S
            or self._unasked_messages >= _ASKS_EVERY_MESSAGES
            or self._unasked_bytes >= _ASKS_EVERY_BYTES
        )
        piece = Piece(head, payload, len(head) + size)
        return self._send(self.add(piece), piece, asks=asks, now_s=now_s)

    def probe(self, *, now_s: float) -> UrgentProbe | None:
        """Asks what came, if nobody has said so for long; fewer while nothing is heard."""
        if now_s < self.probe_s:
            return None
        self._sent_s = now_s
        return self.ask(UrgentProbe, now_s=now_s)

    def on_ack(self, ack: Ack, *, now_s: float) -> tuple[Transmission, ...]:
        """What is to be sent again now, in that order: what the receiver misses and all after it.

        One that makes no sense is ignored. See `acknowledge`.
        """
        self.acknowledge(ack, now_s=now_s)
        last = self.end - 1
        return tuple(
            self._send(*self.take_lost(), asks=number == last, now_s=now_s)
            for number in range(self.next_number, self.end)
        )

    def _send(self, number: int, piece: Piece, *, asks: bool, now_s: float) -> Transmission:
        self._sent_s = now_s
        if asks:
            self._asked_s, self._unasked_messages, self._unasked_bytes = now_s, 0, 0
        return Transmission(Urgent(self.stream, number, us(now_s), asks), piece)
