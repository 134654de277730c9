"""The sending end of a lane: what was sent is kept until it is acknowledged, else it goes again.

A connection that is given up may have lost what it carried, or deliver it beside what its successor
carries, long after. So pieces are numbered without gaps, and the receiver takes each only when it
is its turn: when one is missing, it and all that was sent after it go again (go-back-N). Pure.
Times in seconds of one monotonic clock.
"""

import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from runtime.protocol.link_frames import Ack, Chunk, Probe, Urgent, UrgentProbe
from runtime.transport.receive_stream import Bytes

PROBE_INTERVAL_S = 1.0  # without an answer, twice as long each time
MOST_PROBE_INTERVAL_S = 30.0

random_stream = partial(secrets.randbits, 32)
ProbeT = TypeVar("ProbeT", Probe, UrgentProbe)


class Piece(NamedTuple):
    """A message, or a part of its payload of `payload_bytes` from `offset`; `n_bytes` with `head`,
    which is empty but for the first part.

    `message` is one object for all parts of a message. `is_filler`: it only fills the link.
    """

    head: bytes
    part: Bytes
    n_bytes: int
    offset: int = 0
    payload_bytes: int = 0
    message: object = None
    is_filler: bool = False


class Transmission(NamedTuple):
    """A piece that is to be sent now."""

    header: Chunk | Urgent
    piece: Piece


class Answered(NamedTuple):
    """What an ack acknowledges for the first time, and whether something was lost."""

    n_bytes: int
    is_lost: bool


class SendStream:
    """Owns the pieces of one lane that are not acknowledged yet; both lanes are one.

    `new_stream` gives a number that no other sender of the peer uses (32 bits).
    """

    def __init__(self, new_stream: Callable[[], int]) -> None:
        self.stream = new_stream()
        self._new_stream = new_stream
        self.in_flight_bytes = 0  # sent and not acknowledged
        self.lost_bytes = 0  # to be sent again
        self.kept: deque[Piece] = deque()  # of both kinds, oldest first
        self.probe_interval_s = PROBE_INTERVAL_S
        self.next_number = 0  # of the piece that goes next: a kept one after a loss
        self._first = 0  # the number of the oldest that is kept
        self._went_back_us = 0

    @property
    def end(self) -> int:
        """The number of the next new piece."""
        return self._first + len(self.kept)

    @property
    def has_lost(self) -> bool:
        """Whether something is to be sent again."""
        return self.next_number < self.end

    def add(self, piece: Piece) -> int:
        """Keep a new piece, which goes now, and return its number; nothing may be lost."""
        self.kept.append(piece)
        return self._go(piece)

    def take_lost(self) -> tuple[int, Piece]:
        """The lost piece that goes now, and its number."""
        piece = self.kept[self.next_number - self._first]
        self.lost_bytes -= piece.n_bytes
        return self._go(piece), piece

    def _go(self, piece: Piece) -> int:
        self.in_flight_bytes += piece.n_bytes
        self.next_number += 1
        return self.next_number - 1

    def ask(self, kind: type[ProbeT], *, now_s: float) -> ProbeT:
        """A probe for what came; it goes now, and the next one later if nothing is heard."""
        self.probe_interval_s = min(2 * self.probe_interval_s, MOST_PROBE_INTERVAL_S)
        return kind(stream=self.stream, sequence=self.next_number, sent_us=us(now_s))

    def acknowledge(self, ack: Ack, *, now_s: float) -> Answered | None:
        """Forget what the receiver has; None for an ack of another stream or of what was not sent.

        What it misses is sent again. A receiver that misses what is no longer kept was restarted:
        another stream begins with the first message of which nothing was acknowledged.
        """
        if ack.stream != self.stream or ack.expected > self.end:
            return None
        self.probe_interval_s = PROBE_INTERVAL_S
        oldest, before_bytes = self._first, self.in_flight_bytes
        while self._first < min(ack.expected, self.next_number):
            self.in_flight_bytes -= self.kept.popleft().n_bytes
            self._first += 1
        acked_bytes = before_bytes - self.in_flight_bytes
        if ack.expected >= ack.follows or ack.sent_us < self._went_back_us:
            return Answered(n_bytes=acked_bytes, is_lost=False)
        self._went_back_us = us(now_s)
        if ack.expected < oldest:
            begun = {id(piece.message) for piece in self.kept if piece.offset == 0}
            self.kept = deque(piece for piece in self.kept if id(piece.message) in begun)
            self.stream, self._first = self._new_stream(), 0
        self.next_number, self.in_flight_bytes = self._first, 0
        self.lost_bytes = sum(piece.n_bytes for piece in self.kept)
        return Answered(n_bytes=acked_bytes, is_lost=True)


def us(seconds: float) -> int:
    """In microseconds, as frames have it."""
    return round(seconds * 1e6)
