"""Chunks, probes and acks have fixed bytes; all else is refused, never misread."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.protocol.data import FrameError
from runtime.protocol.link_frames import (
    Ack,
    AnyFrame,
    Beat,
    Chunk,
    Echo,
    Probe,
    Urgent,
    UrgentProbe,
    decode_link_frame,
    encode_link_frame,
    is_link_frame,
)
from tests.examples import examples

NUMBER = st.integers(0, 2**64 - 1)
STREAM = st.integers(0, 2**32 - 1)
GOLDEN = [
    (
        Chunk(stream=7, sequence=2, offset=65536, payload_bytes=131072, sent_us=258),
        "484c4c3101000000" "07000000" "0200000000000000" "0000010000000000"
        "0000020000000000" "0201000000000000",
    ),
    (
        Probe(stream=7, sequence=3, sent_us=1),
        "484c4c3102000000" "07000000" "0300000000000000" "0100000000000000",
    ),
    (
        Urgent(stream=7, sequence=2, sent_us=258, asks=True),
        "484c4c3104000000" "07000000" "0200000000000000" "0201000000000000" "01",
    ),
    (
        UrgentProbe(stream=7, sequence=3, sent_us=1),
        "484c4c3105000000" "07000000" "0300000000000000" "0100000000000000",
    ),
    (
        Ack(stream=7, expected=3, follows=4, delivered_bytes=5, sent_us=258),
        "484c4c3103000000" "07000000" "0300000000000000" "0400000000000000"
        "0500000000000000" "0201000000000000",
    ),
    (Beat(sequence=258), "484c4c3106000000" "0201000000000000"),
    (
        Echo(sequence=258, turn_us=500_000, longest_turn_us=2_000_000),
        "484c4c3107000000" "0201000000000000" "20a1070000000000" "80841e0000000000",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "golden"), GOLDEN)
def test_frames_have_the_same_bytes_in_every_release(frame: AnyFrame, golden: str) -> None:
    assert encode_link_frame(frame).hex() == golden
    assert decode_link_frame(bytes.fromhex(golden)) == frame
    assert is_link_frame(bytes.fromhex(golden))


@given(
    st.one_of(
        st.builds(
            Chunk, stream=STREAM, sequence=NUMBER, offset=NUMBER, payload_bytes=NUMBER,
            sent_us=NUMBER,
        ),
        st.builds(Probe, stream=STREAM, sequence=NUMBER, sent_us=NUMBER),
        st.builds(
            Urgent, stream=STREAM, sequence=NUMBER, sent_us=NUMBER, asks=st.booleans(),
        ),
        st.builds(UrgentProbe, stream=STREAM, sequence=NUMBER, sent_us=NUMBER),
        st.builds(
            Ack, stream=STREAM, expected=NUMBER, follows=NUMBER, delivered_bytes=NUMBER,
            sent_us=NUMBER,
        ),
        st.builds(Beat, sequence=NUMBER),
        st.builds(Echo, sequence=NUMBER, turn_us=NUMBER, longest_turn_us=NUMBER),
    )
)  # fmt: skip
def test_what_is_encoded_is_decoded(frame: AnyFrame) -> None:
    assert decode_link_frame(encode_link_frame(frame)) == frame


@settings(max_examples=examples(300))
@given(st.binary(max_size=64), st.sampled_from([b"", b"HLL1", b"HLL1\x01\0\0\0", b"HLL2"]))
def test_noise_is_refused_by_a_frame_error_and_nothing_else(noise: bytes, begin: bytes) -> None:
    with contextlib.suppress(FrameError):
        decode_link_frame(begin + noise)


@pytest.mark.parametrize(("frame", "golden"), GOLDEN)
def test_a_frame_cut_short_or_too_long_is_refused(frame: Chunk, golden: str) -> None:
    whole = bytes.fromhex(golden)
    for wrong in (*(whole[:end] for end in range(len(whole))), whole + b"\0"):
        with pytest.raises(FrameError):
            decode_link_frame(wrong)


def test_another_version_is_named() -> None:
    with pytest.raises(FrameError, match="b'HLL2', not b'HLL1'"):
        decode_link_frame(b"HLL2" + bytes(40))
    with pytest.raises(FrameError, match="unknown kind 9"):
        decode_link_frame(b"HLL1\x09" + bytes(40))
    with pytest.raises(FrameError, match="asks for an ack with 2"):
        decode_link_frame(bytes.fromhex(GOLDEN[2][1])[:-1] + b"\x02")


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FrameError, match="does not fit"):
        encode_link_frame(Probe(stream=2**32, sequence=0, sent_us=0))
