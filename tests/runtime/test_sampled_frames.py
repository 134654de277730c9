"""Tokens on the wire: golden bytes, and nothing but FrameError for payloads that do not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.protocol.data import DType, Entry, Flag, FrameError, Kind, Message
from runtime.protocol.sampled import Logprobs, SampledToken, pack_sampled, unpack_sampled


def message(payload: bytes, *flags: Flag) -> Message:
    entries = tuple(
        Entry(request=index, epoch=0, position=9, n_tokens=1, hop=0, flags=each)
        for index, each in enumerate(flags)
    )
    return Message(
        kind=Kind.SAMPLED, generation=1, entries=entries, dtype=DType.INT32, payload=payload
    )


def test_tokens_and_the_logprobs_of_one_of_them_have_these_bytes() -> None:
    told = Logprobs(token=-0.5, most_likely=((7, -0.5), (3, -2.0)))
    payload = pack_sampled([7, 8], [told, None])
    ids = "07000000 08000000"
    assert payload == bytes.fromhex(ids + "02 000000bf 07000000 000000bf 03000000 000000c0")
    sent = message(payload, Flag.LOGPROBS, Flag.NONE)
    assert unpack_sampled(sent) == [
        SampledToken(entry=sent.entries[0], token_id=7, logprobs=told),
        SampledToken(entry=sent.entries[1], token_id=8, logprobs=None),
    ]


def test_tokens_alone_are_their_ids() -> None:
    assert pack_sampled([5, 6], [None, None]) == bytes.fromhex("05000000 06000000")


@given(
    payload=st.binary(max_size=40),
    flags=st.lists(st.sampled_from([Flag.NONE, Flag.LOGPROBS]), max_size=4),
)
def test_a_payload_of_another_length_is_refused(payload: bytes, flags: list[Flag]) -> None:
    try:
        tokens = unpack_sampled(message(payload, *flags))
    except FrameError:
        return
    assert len(tokens) == len(flags)
    assert len(payload) >= 4 * len(flags)


def test_a_missing_token_is_refused_with_the_sizes() -> None:
    with pytest.raises(FrameError, match="carries 4 bytes for 2 tokens"):
        unpack_sampled(message(bytes(4), Flag.NONE, Flag.NONE))
