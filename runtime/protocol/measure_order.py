"""The coordinator's order to a stage: find out what a link does that nothing is sent over."""

import struct
from dataclasses import dataclass

from runtime.protocol.frame_error import FrameError

_ORDER = struct.Struct("<Qd")  # bytes, seconds; the peer's name follows


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
