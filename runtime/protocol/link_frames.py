"""What a link's connections carry beside messages: numbers, chunks, probes, acks, heartbeats.

A directed link has two lanes, each a TCP connection of its own. The urgent lane carries whole
messages, three ZeroMQ frames each, the bulk lane carries messages in chunks, as many:

    [urgent header]  [head of the message]  [its payload]
    [chunk header]  [head of the message, with its first chunk only]  [part of the payload]

Both are numbered without gaps within a stream; a stream begins when the sender does. The
receiver answers each chunk and probe with an ack, one frame, on the same connection: which
sequence it expects next, and how many bytes it has had of this peer on both lanes.
That is what rate and round trip are measured by. Of urgent messages it answers those
that ask for it, and those that it does not expect. A message of two frames, head and payload, has
no number: one that is said again and again anyway.
"""

import struct
from typing import NamedTuple

from runtime.protocol.data import FrameError

LINK_MAGIC = b"HLL1"
_KIND = struct.Struct("<4sB3x")  # magic, kind


class Chunk(NamedTuple):
    """Part of a message: `offset` into a payload of `payload_bytes`. Times are in microseconds."""

    stream: int
    sequence: int
    offset: int
    payload_bytes: int
    sent_us: int


class Probe(NamedTuple):
    """Asks for an ack; `sequence` is that of the chunk that will come next."""

    stream: int
    sequence: int
    sent_us: int


class Urgent(NamedTuple):
    """The number of a whole message on the urgent lane, and whether it asks for an ack."""

    stream: int
    sequence: int
    sent_us: int
    asks: bool


class UrgentProbe(NamedTuple):
    """Like a probe, of the urgent lane."""

    stream: int
    sequence: int
    sent_us: int


LinkFrame = Chunk | Probe | Urgent | UrgentProbe  # what a receiver answers


class Beat(NamedTuple):
    """Asks a process whether it is there, on a connection for heartbeats alone."""

    sequence: int


class Echo(NamedTuple):
    """Answers the beat of that sequence; the transport's thread does, whatever the process does.

    `turn_us`: since when the process has taken no messages, 0 while it waits for some;
    `longest_turn_us`: the longest of those before that had as much to do.
    """

    sequence: int
    turn_us: int
    longest_turn_us: int


class Ack(NamedTuple):
    """`expected` is the next sequence of `stream` the receiver can use; it has all before it.

    `follows` is the sequence after what is answered; if less is expected, something was lost.
    `sent_us` repeats that of what is answered.
    """

    stream: int
    expected: int
    follows: int
    delivered_bytes: int
    sent_us: int


AnyFrame = LinkFrame | Ack | Beat | Echo

# by the number of their kind, with the form of their fields
_KINDS: dict[int, tuple[type[AnyFrame], struct.Struct]] = {
    1: (Chunk, struct.Struct("<IQQQQ")),
    2: (Probe, struct.Struct("<IQQ")),
    3: (Ack, struct.Struct("<IQQQQ")),
    4: (Urgent, struct.Struct("<IQQB")),
    5: (UrgentProbe, struct.Struct("<IQQ")),
    6: (Beat, struct.Struct("<Q")),
    7: (Echo, struct.Struct("<QQQ")),
}
_NUMBERS = {kind: (number, form) for number, (kind, form) in _KINDS.items()}


def ack_of(answered: LinkFrame, *, expected: int, delivered_bytes: int) -> Ack:
    """`delivered_bytes`: of this peer on both lanes."""
    return Ack(
        stream=answered.stream,
        expected=expected,
        follows=answered.sequence + isinstance(answered, Chunk | Urgent),
        delivered_bytes=delivered_bytes,
        sent_us=answered.sent_us,
    )


def encode_link_frame(frame: AnyFrame) -> bytes:
    """A header, or a frame that is all of its message. Raises FrameError for what does not fit."""
    number, form = _NUMBERS[type(frame)]
    try:
        return _KIND.pack(LINK_MAGIC, number) + form.pack(*frame)
    except struct.error as error:
        raise FrameError(f"a number does not fit its field: {error} in {frame}") from error


def is_link_frame(frame: bytes | memoryview) -> bool:
    """Whether it begins as the frames of this file do."""
    return bytes(memoryview(frame)[:4]) == LINK_MAGIC


def decode_link_frame(frame: bytes | memoryview) -> AnyFrame:
    """Raises FrameError for anything that `encode_link_frame` does not make."""
    view = memoryview(frame)
    try:
        magic, number = _KIND.unpack_from(view, 0)
        if magic != LINK_MAGIC:
            raise FrameError(f"link frame begins with {bytes(magic)!r}, not {LINK_MAGIC!r}")
        if number not in _KINDS:
            raise FrameError(f"link frame of unknown kind {number}")
        kind, form = _KINDS[number]
        decoded = kind(*form.unpack(view[_KIND.size :]))
    except struct.error as error:
        raise FrameError(f"malformed link frame of {len(view)} bytes: {error}") from error
    if isinstance(decoded, Urgent) and decoded.asks not in (0, 1):
        raise FrameError(f"an urgent message asks for an ack with {decoded.asks:d}, not 0 or 1")
    return decoded
