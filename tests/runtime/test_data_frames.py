"""The wire format: golden bytes, round trips, and nothing but FrameError for bad frames."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.protocol.data import (
    DTYPE_BYTES,
    DType,
    Entry,
    Flag,
    Kind,
    Message,
    Reason,
    StageStatus,
    decode,
    encode,
)
from runtime.protocol.frame_error import FrameError
from runtime.protocol.routes import Hop, Route, Sampling

ROUTE = Route(
    hops=(Hop(node="gpu-1", first=0, end=4), Hop(node="é", first=4, end=8)),
    sampling=Sampling(
        temperature=0.5, top_p=1.0, top_k=3, seed=9, max_tokens=16, stop_token_ids=(2, 7)
    ),
    prompt_tokens=2,
)


def entry(**changes: object) -> Entry:
    values: dict[str, object] = {
        "request": 5,
        "epoch": 1,
        "position": 0,
        "n_tokens": 2,
        "hop": 0,
    }
    return Entry(**{**values, **changes})  # type: ignore[arg-type]


def test_a_prompt_message_has_these_bytes() -> None:
    """Changing the format must change its magic."""
    message = Message(
        kind=Kind.PROMPT,
        generation=3,
        entries=(entry(flags=Flag.ROUTE | Flag.PROMPT_END, route=ROUTE),),
        dtype=DType.INT32,
        payload=struct.pack("<2i", 11, 12),
    )
    head, payload = encode(message)
    assert head == _golden()
    assert bytes(payload) == bytes.fromhex("0b0000000c000000")
    assert decode(head, payload) == message


def _golden() -> bytes:
    header = b"HLX1" + bytes([1, 1]) + b"\x01\x00" + b"\x03\0\0\0" + b"\x08" + bytes(7)
    row = b"\x05" + bytes(7) + b"\x01\0\0\0" + bytes(4) + b"\x02\0\0\0" + b"\x00\x03" + bytes(2)
    sampling = (
        b"\x02\x00\x00\x00\x3f\x00\x00\x80\x3f\x03\0\0\0\x09" + bytes(7) + b"\x10\0\0\0\x02\0\0\0"
        b"\x02\x02\0\0\0\x07\0\0\0"
    )
    hops = b"\0\0\x04\0\x05gpu-1" + b"\x04\0\x08\0\x02\xc3\xa9"
    return header + row + sampling + hops


def test_what_few_requests_need_follows_the_route_in_these_bytes() -> None:
    route = replace(
        ROUTE,
        sampling=replace(
            ROUTE.sampling,
            min_p=0.25,
            presence_penalty=1.0,
            frequency_penalty=-1.0,
            repetition_penalty=2.0,
            logit_bias=((6, -0.5),),
            logprobs=3,
            min_tokens=4,
            grammar="{}",
            prompt_ids=(8, 9),
            emitted_ids=(10,),
        ),
        block_digests=(bytes(range(16)),),
    )
    message = Message(
        kind=Kind.PROMPT,
        generation=3,
        entries=(entry(flags=Flag.ROUTE | Flag.PROMPT_END, route=route),),
        dtype=DType.INT32,
        payload=struct.pack("<2i", 11, 12),
    )
    head, payload = encode(message)
    golden = bytearray(_golden())
    golden[16 + 8 + 25 - 8] |= 8  # the entry's flags say that it follows
    floats = "0000803e 0000803f 000080bf 00000040"
    counts = "03 04000000 0100 02000000 02000000 01000000 01000000"
    rest = "06000000 000000bf 7b7d 08000000 09000000 0a000000"
    extension = bytes.fromhex(floats + counts + rest) + bytes(range(16))
    assert head == bytes(golden) + extension
    assert decode(head, payload) == message


def test_the_name_of_another_than_the_first_coordinator_ends_a_route_in_these_bytes() -> None:
    message = Message(
        kind=Kind.PROMPT,
        generation=3,
        entries=(entry(flags=Flag.PROMPT_END, route=replace(ROUTE, coordinator="coordinator:2")),),
        dtype=DType.INT32,
        payload=struct.pack("<2i", 11, 12),
    )
    head, payload = encode(message)
    golden = bytearray(_golden())
    golden[16 + 8 + 25 - 8] |= 128  # the entry's flags say that it follows
    assert head == bytes(golden) + b"\x0dcoordinator:2"
    (decoded,) = decode(head, payload).entries
    assert decoded.route == message.entries[0].route
    with pytest.raises(FrameError, match="cut short"):
        decode(head[:-1], payload)


def test_pages_that_others_took_end_a_status_and_nothing_does_if_there_are_none() -> None:
    status = StageStatus(incarnation=1, first=2, end=3, page_tokens=4, pages_total=5, pages_used=6)
    message = Message(kind=Kind.STATUS, generation=7, status=status)
    head, payload = encode(message)
    header = b"HLX1" + bytes([6, 0]) + bytes(2) + b"\x07\0\0\0" + bytes(8)
    golden = header + struct.pack("<6I", *range(1, 7))
    assert head == golden
    assert decode(head, payload) == message
    shared = replace(message, status=replace(status, pages_elsewhere=9))
    assert encode(shared)[0] == golden + b"\x09\0\0\0"
    assert decode(*encode(shared)) == shared


def test_a_generation_is_retired_by_a_header_alone() -> None:
    message = Message(kind=Kind.RETIRE, generation=7)
    head, payload = encode(message)
    assert head == b"HLX1" + bytes([10, 0]) + bytes(2) + b"\x07\0\0\0" + bytes(8)
    assert bytes(payload) == b""
    assert decode(head, payload) == message


def test_an_extension_longer_than_its_frame_is_refused() -> None:
    route = replace(ROUTE, block_digests=(bytes(16),) * 3)
    head, _ = encode(Message(kind=Kind.PROMPT, generation=1, entries=(entry(route=route),)))
    with pytest.raises(FrameError, match="cut short"):
        decode(head[:-16], b"")


def test_a_digest_of_another_length_is_refused_before_it_is_sent() -> None:
    route = replace(ROUTE, block_digests=(bytes(15),))
    with pytest.raises(FrameError, match="has not 16 bytes"):
        encode(Message(kind=Kind.PROMPT, generation=1, entries=(entry(route=route),)))


names = st.text(min_size=1, max_size=20).filter(lambda name: len(name.encode()) <= 255)
u32 = st.integers(0, 2**32 - 1)
u16 = st.integers(0, 2**16 - 1)
floats = st.floats(width=32, allow_nan=False)
routes = st.builds(
    Route,
    hops=st.lists(st.builds(Hop, node=names, first=u16, end=u16), min_size=1, max_size=4).map(
        tuple
    ),
    sampling=st.builds(
        Sampling,
        temperature=floats,
        top_p=floats,
        top_k=u32,
        seed=st.integers(0, 2**64 - 1),
        max_tokens=u32,
        stop_token_ids=st.lists(u32, max_size=5).map(tuple),
        min_p=floats,
        presence_penalty=floats,
        repetition_penalty=floats,
        logit_bias=st.lists(st.tuples(u32, floats), max_size=3).map(tuple),
        logprobs=st.none() | st.integers(0, 20),
        grammar=st.text(max_size=10),
        prompt_ids=st.lists(u32, max_size=3).map(tuple),
        emitted_ids=st.lists(u32, max_size=3).map(tuple),
    ),
    prompt_tokens=u32,
    block_digests=st.lists(st.binary(min_size=16, max_size=16), max_size=3).map(tuple),
    coordinator=st.just("coordinator") | names,
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    entries = []
    for _ in range(draw(st.integers(0, 5))):
        route = draw(st.none() | routes)
        flags = draw(st.sampled_from([Flag.NONE, Flag.PROMPT_END, Flag.FINISHED]))
        entries.append(
            Entry(
                request=draw(st.integers(0, 2**64 - 1)),
                epoch=draw(u32),
                position=draw(u32),
                n_tokens=draw(u32),
                hop=draw(st.integers(0, 255)),
                flags=flags | Flag.ROUTE if route else flags,
                reason=draw(st.sampled_from(list(Reason))),
                route=route,
            )
        )
    kind = draw(st.sampled_from(list(Kind)))
    status = None
    if kind == Kind.STATUS:
        numbers = [draw(u32) for _ in range(6)]
        keys = ("incarnation", "first", "end", "page_tokens", "pages_total", "pages_used")
        status = StageStatus(**dict(zip(keys, numbers, strict=True)))
    return Message(
        kind=kind,
        generation=draw(u32),
        entries=tuple(entries),
        dtype=draw(st.sampled_from(list(DType))),
        payload=draw(st.binary(max_size=64)),
        status=status,
    )


@given(messages())
def test_what_is_encoded_decodes_to_the_same(message: Message) -> None:
    assert decode(*encode(message)) == message


@given(st.binary(max_size=400), st.binary(max_size=40))
def test_random_bytes_are_refused_with_a_frame_error(head: bytes, payload: bytes) -> None:
    with pytest.raises(FrameError):
        decode(head, payload)


@given(messages(), st.data())
def test_a_damaged_frame_is_refused_or_decodes_to_a_message(
    message: Message, data: st.DataObject
) -> None:
    head, payload = encode(message)
    damaged = bytearray(head)
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for frame in (damaged, damaged[:cut], damaged + b"\0"):
        try:
            decoded = decode(bytes(frame), payload)
        except FrameError:
            continue
        assert isinstance(decoded, Message)


def test_a_count_larger_than_the_frame_is_refused_at_once() -> None:
    head, payload = encode(Message(kind=Kind.RELEASE, generation=1))
    with pytest.raises(FrameError, match="malformed"):
        decode(head[:6] + b"\xff\xff" + head[8:], payload)


@pytest.mark.parametrize(
    "wrong",
    [
        entry(request=2**64),
        entry(position=-1),
        entry(hop=256),
        entry(route=Route(hops=(), sampling=ROUTE.sampling, prompt_tokens=1)),
        entry(
            route=Route(
                hops=(Hop(node="x" * 256, first=0, end=1),),
                sampling=ROUTE.sampling,
                prompt_tokens=1,
            )
        ),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_it_is_sent(wrong: Entry) -> None:
    with pytest.raises(FrameError):
        encode(Message(kind=Kind.PROMPT, generation=1, entries=(wrong,)))


def test_the_size_of_every_dtype_is_known() -> None:
    assert set(DTYPE_BYTES) == set(DType)
