"""What a link's lanes say beside the messages themselves: numbers, chunks, probes and acks.

A directed link has two lanes, each a TCP connection of its own. The urgent lane carries whole
messages, three ZeroMQ frames each, the bulk lane carries messages in chunks, as many:

    [urgent header]  [head of the message]  [its payload]
    [chunk header]  [head of the message, with its first chunk only]  [part of the payload]

Both are numbered without gaps within a stream; a stream begins when the sender does. The
receiver answers each chunk and probe with an ack, one frame, on the same connection: which
sequence it expects next, and how many bytes it has had of this peer on both lanes by which time of
its own clock. That is what rate and round trip are measured by. Of urgent messages it answers those
that ask for it, and those that it does not expect. A message of two frames, head and payload, has
no number: one that is said again and again anyway.
"""

import struct
from dataclasses import dataclass

from runtime.protocol.frame_error import FrameError

LINK_MAGIC = b"HLL1"
_CHUNK, _PROBE, _ACK, _URGENT, _URGENT_PROBE = 1, 2, 3, 4, 5
_KIND = struct.Struct("<4sB3x")  # magic, kind
# stream, sequence, offset in the payload, payload bytes of the whole message, sent at (us)
_CHUNK_BODY = struct.Struct("<IQQQQ")
_PROBE_BODY = struct.Struct("<IQQ")  # stream, next sequence, sent at (us)
# stream, expected, follows, delivered bytes, received at (us, receiver's clock), sent at (echo, us)
_ACK_BODY = struct.Struct("<IQQQQQ")
_URGENT_BODY = struct.Struct("<IQQB")  # stream, sequence, sent at (us), whether it asks for an ack


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Part of a message: `offset` into a payload of `payload_bytes`. Times are in microseconds."""

    stream: int
    sequence: int
    offset: int
    payload_bytes: int
    sent_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Asks for an ack; `sequence` is that of the chunk that will come next."""

    stream: int
    sequence: int
    sent_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Urgent:
    """The number of a whole message on the urgent lane."""

    stream: int
    sequence: int
    sent_us: int
    asks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentProbe:
    """Like a probe, of the urgent lane."""

    stream: int
    sequence: int
    sent_us: int


LinkFrame = Chunk | Probe | Urgent | UrgentProbe  # what a receiver answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """`expected` is the next sequence of `stream` the receiver can use; it has all before it.

    `follows` is the sequence after what is answered; if less is expected, something was lost.
    `received_us` is a time of the receiver's clock, `sent_us` repeats that of what is answered.
    """

    stream: int
    expected: int
    follows: int
    delivered_bytes: int
    received_us: int
    sent_us: int


def ack_of(answered: LinkFrame, *, expected: int, delivered_bytes: int, received_us: int) -> Ack:
    """`delivered_bytes`: of this peer on both lanes."""
    return Ack(
        stream=answered.stream,
        expected=expected,
        follows=answered.sequence + isinstance(answered, Chunk | Urgent),
        delivered_bytes=delivered_bytes,
        received_us=received_us,
        sent_us=answered.sent_us,
    )


def encode_link_frame(frame: LinkFrame | Ack) -> bytes:
    """A header, or a whole probe or ack. Raises FrameError for what does not fit."""
    try:
        match frame:
            case Chunk():
                return _KIND.pack(LINK_MAGIC, _CHUNK) + _CHUNK_BODY.pack(
                    frame.stream, frame.sequence, frame.offset, frame.payload_bytes, frame.sent_us
                )
            case Probe():
                return _KIND.pack(LINK_MAGIC, _PROBE) + _PROBE_BODY.pack(
                    frame.stream, frame.sequence, frame.sent_us
                )
            case Urgent():
                return _KIND.pack(LINK_MAGIC, _URGENT) + _URGENT_BODY.pack(
                    frame.stream, frame.sequence, frame.sent_us, frame.asks
                )
            case UrgentProbe():
                return _KIND.pack(LINK_MAGIC, _URGENT_PROBE) + _PROBE_BODY.pack(
                    frame.stream, frame.sequence, frame.sent_us
                )
            case Ack():
                return _KIND.pack(LINK_MAGIC, _ACK) + _ACK_BODY.pack(
                    frame.stream,
                    frame.expected,
                    frame.follows,
                    frame.delivered_bytes,
                    frame.received_us,
                    frame.sent_us,
                )
    except struct.error as error:
        raise FrameError(f"a number does not fit its field: {error} in {frame}") from error


def is_link_frame(frame: bytes | memoryview) -> bool:
    """Whether it begins as the frames of this file do."""
    return bytes(memoryview(frame)[:4]) == LINK_MAGIC


def decode_link_frame(frame: bytes | memoryview) -> LinkFrame | Ack:
    """Raises FrameError for anything that `encode_link_frame` does not make."""
    view = memoryview(frame)
    try:
        magic, kind = _KIND.unpack_from(view, 0)
        if magic != LINK_MAGIC:
            raise FrameError(f"link frame begins with {bytes(magic)!r}, not {LINK_MAGIC!r}")
        body = view[_KIND.size :]
        if kind == _CHUNK:
            stream, sequence, offset, payload_bytes, sent_us = _CHUNK_BODY.unpack(body)
            return Chunk(
                stream=stream,
                sequence=sequence,
                offset=offset,
                payload_bytes=payload_bytes,
                sent_us=sent_us,
            )
        if kind in (_PROBE, _URGENT_PROBE):
            stream, sequence, sent_us = _PROBE_BODY.unpack(body)
            probe = Probe if kind == _PROBE else UrgentProbe
            return probe(stream=stream, sequence=sequence, sent_us=sent_us)
        if kind == _URGENT:
            stream, sequence, sent_us, asks = _URGENT_BODY.unpack(body)
            if asks not in (0, 1):
                raise FrameError(f"an urgent message asks for an ack with {asks}, not 0 or 1")
            return Urgent(stream=stream, sequence=sequence, sent_us=sent_us, asks=bool(asks))
        if kind == _ACK:
            stream, expected, follows, delivered, received_us, sent_us = _ACK_BODY.unpack(body)
            return Ack(
                stream=stream,
                expected=expected,
                follows=follows,
                delivered_bytes=delivered,
                received_us=received_us,
                sent_us=sent_us,
            )
    except struct.error as error:
        raise FrameError(f"malformed link frame of {len(view)} bytes: {error}") from error
    raise FrameError(f"link frame of unknown kind {kind}")
