"""The receiving end of a bulk lane: chunks of one peer back into messages, and what to ack. Pure.

Chunks come in order or not at all. One that is a repeat or follows a gap changes nothing; the ack
says which is expected, and the sender goes back to it.
"""

from runtime.protocol.data import FrameError
from runtime.protocol.link_frames import Chunk

# Larger messages are refused: 512 prompt tokens of a 16k-wide model in fp32 are 32 MiB.
MAX_PAYLOAD_BYTES = 256 * 2**20

Bytes = bytes | bytearray | memoryview
Whole = tuple[Bytes, Bytes]  # the frames of a message: head, payload


class Reassembly:
    """Owns the message that chunks of one peer are put together to; the lanes' thread calls it.

    At most one message is incomplete at a time, so memory is bounded.
    """

    def __init__(self) -> None:
        self.out_of_order = 0  # chunks repeated or after a gap, since the start
        self._stream: int | None = None
        self._expected = 0
        self._head = b""
        self._payload = bytearray()
        self._filled = 0

    def accept(self, chunk: Chunk, head: Bytes, part: Bytes) -> Whole | None:
        """The message that this chunk completes. Raises FrameError for one that makes no sense;
        its message is then lost, and the next begins anew."""
        if chunk.stream != self._stream and chunk.sequence == 0:
            self._begin_stream(chunk.stream)
        if chunk.stream != self._stream or chunk.sequence != self._expected:
            self.out_of_order += 1
            return None
        self._expected += 1
        size = memoryview(part).nbytes
        try:
            self._check(chunk, head, size)
        except FrameError:
            self._forget()
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
        self._forget()
        return whole

    def expected(self, stream: int) -> int:
        """Of an unknown stream nothing was had."""
        return self._expected if stream == self._stream else 0

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

    def _begin_stream(self, stream: int) -> None:
        self._stream, self._expected = stream, 0
        self._forget()

    def _forget(self) -> None:
        self._head, self._payload, self._filled = b"", bytearray(), 0
