"""The receiving end of a peer's lanes: numbered pieces back into messages. Pure.

Pieces of a stream are taken in order or not at all. One that is a repeat or follows a gap changes
nothing; the ack says which is expected, and the sender goes back to it.
"""

from collections import OrderedDict

from runtime.protocol.data import FrameError
from runtime.protocol.link_frames import Chunk, Urgent

# Larger messages are refused: 512 prompt tokens of a 16k-wide model in fp32 are 32 MiB.
MAX_PAYLOAD_BYTES = 256 * 2**20
# Of a peer: two of its processes may send for a while on two lanes, and none forgets its own.
_STREAMS_KEPT = 16

Bytes = bytes | bytearray | memoryview
Whole = tuple[Bytes, Bytes]  # the frames of a message: head, payload


class ReceiveStreams:
    """Owns whose turn it is in the streams of one peer, and the message that its chunks are put
    together to; the lanes' thread calls it.

    At most one message is incomplete at a time, so memory is bounded.
    """

    def __init__(self) -> None:
        self.out_of_turn = 0  # pieces repeated or after a gap, since the start
        self._expected: OrderedDict[int, int] = OrderedDict()  # by stream, the latest used last
        self._chunked = -1  # the stream of the last chunk
        self._head = b""
        self._payload = bytearray()
        self._filled = 0

    def accept(self, header: Chunk | Urgent, head: Bytes, part: Bytes) -> Whole | None:
        """The message that this piece completes. Raises FrameError for a chunk that makes no sense;
        its message is then lost, and the next begins anew."""
        if header.sequence != self.expected(header.stream):
            self.out_of_turn += 1
            return None
        if isinstance(header, Chunk) and header.stream != self._chunked:
            self.forget_chunks()
            self._chunked = header.stream
        self._expected[header.stream] = header.sequence + 1
        self._expected.move_to_end(header.stream)
        if len(self._expected) > _STREAMS_KEPT:
            self._expected.popitem(last=False)
        return self._put(header, head, part) if isinstance(header, Chunk) else (head, part)

    def expected(self, stream: int) -> int:
        """The number of the piece that is taken next; of an unknown stream nothing was had."""
        return self._expected.get(stream, 0)

    def forget_chunks(self) -> None:
        """Drop the message that is incomplete, and its stream: its sender begins another."""
        self._expected.pop(self._chunked, None)
        self._clear()

    def _put(self, chunk: Chunk, head: Bytes, part: Bytes) -> Whole | None:
        size = memoryview(part).nbytes
        try:
            self._check(chunk, head, size)
        except FrameError:
            self._clear()
            raise
        if size == chunk.payload_bytes:
            return head, part
        if chunk.offset == 0:
            self._head, self._payload = bytes(head), bytearray(chunk.payload_bytes)
        self._payload[chunk.offset : chunk.offset + size] = part
        self._filled = chunk.offset + size
        if self._filled < len(self._payload):
            return None
        whole = self._head, memoryview(self._payload)
        self._clear()
        return whole

    def _check(self, chunk: Chunk, head: Bytes, size: int) -> None:
        if chunk.payload_bytes > MAX_PAYLOAD_BYTES:
            raise FrameError(
                f"a message of {chunk.payload_bytes} bytes; at most {MAX_PAYLOAD_BYTES} are taken"
            )
        if chunk.offset + size > chunk.payload_bytes:
            raise FrameError(
                f"{size} bytes at {chunk.offset} of a payload of {chunk.payload_bytes} bytes"
            )
        if chunk.offset != self._filled or (chunk.offset == 0) != (len(head) > 0):
            raise FrameError(
                f"a chunk at {chunk.offset} with a head of {len(head)} bytes; {self._filled} bytes "
                "of its message had come"
            )
        if chunk.offset and chunk.payload_bytes != len(self._payload):
            raise FrameError(
                f"a payload of {chunk.payload_bytes} bytes; its first chunk said "
                f"{len(self._payload)}"
            )

    def _clear(self) -> None:
        self._head, self._payload, self._filled = b"", bytearray(), 0
