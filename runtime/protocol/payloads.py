"""The payloads of LOST_LINKS, MEASURE, RETIRE and LEAVING.

LOST_LINKS has the names of the peers that a stage cannot reach, UTF-8, one to a line; all of them
every time, none when all are there. MEASURE is the coordinator's order to a stage to find out what
a link does that nothing is sent over. RETIRE and LEAVING may name the process of a stage that is
meant, where another may be in its place by then.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass

from runtime.protocol.data import FrameError, Kind, Message

MAX_PEERS = 4096
_ORDER = struct.Struct("<Qd")  # bytes, seconds; the peer's name follows
LIFE_BYTES = 4


def lost_links_message(peers: Collection[str], *, generation: int) -> Message:
    """Raises FrameError for a name with a line break, or for too many."""
    if len(peers) > MAX_PEERS or any("\n" in peer for peer in peers):
        raise FrameError(f"{len(peers)} names of peers; at most {MAX_PEERS}, each of one line, fit")
    return Message(
        kind=Kind.LOST_LINKS, generation=generation, payload="\n".join(sorted(peers)).encode()
    )


def unpack_lost_links(message: Message) -> frozenset[str]:
    """The names of the peers that its sender cannot reach. Raises FrameError."""
    try:
        text = bytes(message.payload).decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"names of lost peers are not UTF-8: {error}") from error
    names = frozenset(text.split("\n")) if text else frozenset()
    if len(names) > MAX_PEERS:
        raise FrameError(f"{len(names)} lost peers; at most {MAX_PEERS} are possible")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOrder:
    """The link to `peer`, with at most so many bytes in at most so many seconds."""

    peer: str
    most_bytes: int
    most_s: float


def pack_order(order: MeasureOrder) -> bytes:
    """The payload of a MEASURE."""
    return _ORDER.pack(order.most_bytes, order.most_s) + order.peer.encode()


def unpack_order(payload: bytes | bytearray | memoryview) -> MeasureOrder:
    """Raises FrameError for what `pack_order` does not make."""
    view = memoryview(payload)
    try:
        most_bytes, most_s = _ORDER.unpack_from(view, 0)
        peer = bytes(view[_ORDER.size :]).decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"malformed order to measure of {len(view)} bytes: {error}") from error
    if not peer or most_bytes == 0 or not 0 < most_s < float("inf"):
        raise FrameError(f"an order to measure {peer!r} with {most_bytes} bytes in {most_s} s")
    return MeasureOrder(peer=peer, most_bytes=most_bytes, most_s=most_s)


def life_of(incarnation: int) -> bytes:
    """Its 4 bytes, little-endian, in LEAVING and in the RETIRE that answers it. Raises
    OverflowError for an incarnation beyond 32 bits."""
    return incarnation.to_bytes(LIFE_BYTES, "little")
