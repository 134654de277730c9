"""Chunks become messages only in order; repeats, gaps and nonsense leave nothing behind."""

import pytest

from runtime.protocol.data import FrameError
from runtime.protocol.link_frames import Ack, Chunk, Probe, Urgent, ack_of
from runtime.transport.receive_stream import MAX_PAYLOAD_BYTES, ReceiveStreams


def chunk(sequence: int, offset: int, total: int, *, stream: int = 1) -> Chunk:
    return Chunk(
        stream=stream, sequence=sequence, offset=offset, payload_bytes=total, sent_us=sequence
    )


def ack(streams: ReceiveStreams, answered: Chunk | Probe, *, delivered_bytes: int = 0) -> Ack:
    expected = streams.expected(answered.stream)
    return ack_of(answered, expected=expected, delivered_bytes=delivered_bytes)


def expected(streams: ReceiveStreams, answered: Chunk | Probe) -> int:
    return ack(streams, answered).expected


def test_a_message_in_one_chunk_is_handed_on_without_a_copy() -> None:
    part = memoryview(b"rows")
    whole = ReceiveStreams().accept(chunk(0, 0, 4), b"head", part)
    assert whole is not None
    assert whole[1] is part


def test_chunks_in_order_become_the_message_and_acks_count_them() -> None:
    streams = ReceiveStreams()
    assert streams.accept(chunk(0, 0, 5), b"head", b"ab") is None
    assert streams.accept(chunk(1, 2, 5), b"", b"cd") is None
    whole = streams.accept(chunk(2, 4, 5), b"", b"e")
    assert whole == (b"head", b"abcde")
    told = ack(streams, chunk(2, 4, 5), delivered_bytes=9)
    assert (told.expected, told.follows, told.delivered_bytes, told.sent_us) == (3, 3, 9, 2)


def test_a_repeated_chunk_changes_nothing() -> None:
    streams = ReceiveStreams()
    streams.accept(chunk(0, 0, 4), b"head", b"ab")
    assert streams.accept(chunk(0, 0, 4), b"head", b"XY") is None
    assert streams.accept(chunk(1, 2, 4), b"", b"cd") == (b"head", b"abcd")
    assert streams.out_of_turn == 1


def test_a_chunk_after_a_gap_is_not_taken_and_the_ack_says_what_is_missing() -> None:
    streams = ReceiveStreams()
    streams.accept(chunk(0, 0, 6), b"head", b"ab")
    late = chunk(2, 4, 6)
    assert streams.accept(late, b"", b"ef") is None
    told = ack(streams, late)
    assert (told.expected, told.follows) == (1, 3)
    assert expected(streams, Probe(stream=1, sequence=3, sent_us=0)) == 1


def test_of_a_stream_it_never_heard_the_beginning_of_nothing_is_taken() -> None:
    streams = ReceiveStreams()
    assert streams.accept(chunk(5, 0, 2), b"head", b"ab") is None
    assert expected(streams, chunk(5, 0, 2)) == 0


def test_a_new_stream_forgets_what_the_old_one_left_incomplete() -> None:
    streams = ReceiveStreams()
    streams.accept(chunk(0, 0, 4), b"old", b"ab")
    assert streams.accept(chunk(0, 0, 2, stream=2), b"new", b"cd") == (b"new", b"cd")


@pytest.mark.parametrize(
    ("wrong", "head", "part"),
    [
        (chunk(1, 2, MAX_PAYLOAD_BYTES + 1), b"", b"cd"),
        (chunk(1, 2, 3), b"", b"too long"),
        (chunk(1, 3, 4), b"", b"d"),
        (chunk(1, 2, 8), b"", b"cd"),
        (chunk(1, 0, 4), b"head", b"ab"),
        (chunk(1, 2, 4), b"head", b"cd"),
    ],
)
def test_a_chunk_that_contradicts_its_message_ends_it_and_the_next_message_comes_through(
    wrong: Chunk, head: bytes, part: bytes
) -> None:
    streams = ReceiveStreams()
    streams.accept(chunk(0, 0, 4), b"head", b"ab")
    with pytest.raises(FrameError):
        streams.accept(wrong, head, part)
    assert streams.accept(chunk(2, 0, 2), b"next", b"ok") == (b"next", b"ok")


def test_a_stream_that_another_interrupted_is_begun_again_by_its_sender() -> None:
    streams = ReceiveStreams()
    streams.accept(chunk(0, 0, 4), b"old", b"ab")
    streams.accept(chunk(0, 0, 4, stream=2), b"new", b"cd")
    late = chunk(1, 2, 4)
    assert streams.accept(late, b"", b"ef") is None
    assert expected(streams, late) == 0
    assert streams.accept(chunk(1, 2, 4, stream=2), b"", b"gh") == (b"new", b"cdgh")


def test_messages_of_the_urgent_lane_come_between_the_chunks_of_a_prompt() -> None:
    streams = ReceiveStreams()
    assert streams.accept(chunk(0, 0, 4), b"prompt", b"ab") is None
    decode = Urgent(stream=2, sequence=0, sent_us=0, asks=False)
    assert streams.accept(decode, b"decode", b"rows") == (b"decode", b"rows")
    assert streams.accept(chunk(1, 2, 4), b"", b"cd") == (b"prompt", b"abcd")
