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
    FrameError,
    Hop,
    Kind,
    MeasureOrder,
    Message,
    Reason,
    Route,
    Sampling,
    StageStatus,
    decode,
    encode,
)

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
    assert head == _golden('"stop_token_ids":[2,7]')
    assert bytes(payload) == bytes.fromhex("0b0000000c000000")
    assert decode(head, payload) == message


def _golden(sampling: str, more: str = "") -> bytes:
    """With `sampling` behind what all requests have of it, and `more` at the end of the route."""
    header = b"HLX2" + bytes([1, 1]) + b"\x01\x00" + b"\x03\0\0\0" + b"\x08" + bytes(7)
    row = b"\x05" + bytes(7) + b"\x01\0\0\0" + bytes(4) + b"\x02\0\0\0" + b"\x00\x03" + bytes(2)
    hops = '{"node":"gpu-1","first":0,"end":4},{"node":"é","first":4,"end":8}'
    sampling = f'"temperature":0.5,"top_p":1.0,"top_k":3,"seed":9,"max_tokens":16,{sampling}'
    route = f'"hops":[{hops}],"sampling":{{{sampling}}},"prompt_tokens":2{more}'
    return header + row + f'{{"routes":[{{{route}}}]}}'.encode()


def test_what_few_requests_need_is_in_the_route_only_where_it_is_needed() -> None:
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
        coordinator="coordinator:2",
    )
    message = Message(
        kind=Kind.PROMPT,
        generation=3,
        entries=(entry(flags=Flag.ROUTE | Flag.PROMPT_END, route=route),),
        dtype=DType.INT32,
        payload=struct.pack("<2i", 11, 12),
    )
    head, payload = encode(message)
    assert head == _golden(
        '"min_tokens":4,"stop_token_ids":[2,7],"min_p":0.25,"presence_penalty":1.0,'
        '"frequency_penalty":-1.0,"repetition_penalty":2.0,"logit_bias":[[6,-0.5]],"logprobs":3,'
        '"grammar":"{}","prompt_ids":[8,9],"emitted_ids":[10]',
        ',"block_digests":["AAECAwQFBgcICQoLDA0ODw=="],"coordinator":"coordinator:2"',
    )
    assert decode(head, payload) == message
    with pytest.raises(FrameError, match="malformed"):
        decode(head[:-1], payload)


def test_a_status_says_which_pages_others_took_only_if_there_are_some() -> None:
    status = StageStatus(incarnation=1, first=2, end=3, page_tokens=4, pages_total=5, pages_used=6)
    message = Message(kind=Kind.STATUS, generation=7, status=status)
    head, payload = encode(message)
    header = b"HLX2" + bytes([6, 0]) + bytes(2) + b"\x07\0\0\0" + bytes(8)
    numbers = b'"incarnation":1,"first":2,"end":3,"page_tokens":4,"pages_total":5,"pages_used":6'
    assert head == header + b'{"status":{' + numbers + b"}}"
    assert decode(head, payload) == message
    shared = replace(message, status=replace(status, pages_elsewhere=9))
    assert encode(shared)[0] == header + b'{"status":{' + numbers + b',"pages_elsewhere":9}}'
    assert decode(*encode(shared)) == shared


def test_a_status_without_numbers_is_refused_and_so_are_those_of_another_message() -> None:
    status = StageStatus(incarnation=1, first=2, end=3, page_tokens=4, pages_total=5, pages_used=6)
    head, _ = encode(Message(kind=Kind.STATUS, generation=7, status=status))
    for kind, tail in ((Kind.STATUS, b""), (Kind.RETIRE, head[20:])):
        with pytest.raises(FrameError, match="status"):
            decode(head[:4] + bytes([kind]) + head[5:20] + tail, b"")


@pytest.mark.parametrize("flags", [Flag.NONE, Flag.ROUTE])
def test_entries_that_announce_other_routes_than_there_are_are_refused(flags: Flag) -> None:
    route = ROUTE if flags is Flag.NONE else None
    message = Message(kind=Kind.PROMPT, generation=1, entries=(entry(route=route),))
    head = bytearray(encode(message)[0])
    head[20 + 21] = flags
    with pytest.raises(FrameError, match="announce"):
        decode(bytes(head), b"")


def test_a_generation_is_retired_by_a_header_alone() -> None:
    message = Message(kind=Kind.RETIRE, generation=7)
    head, payload = encode(message)
    assert head == b"HLX2" + bytes([10, 0]) + bytes(2) + b"\x07\0\0\0" + bytes(8)
    assert bytes(payload) == b""
    assert decode(head, payload) == message


names = st.text(min_size=1, max_size=20).filter(lambda name: len(name.encode()) <= 255)
u32 = st.integers(0, 2**32 - 1)
u16 = st.integers(0, 2**16 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
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


orders = st.builds(
    MeasureOrder,
    peer=names,
    most_bytes=st.integers(1, 2**64 - 1),
    most_s=st.floats(min_value=0.001, max_value=1e6),
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
        lost_links=tuple(draw(st.lists(names, max_size=3))) if kind == Kind.LOST_LINKS else None,
        measure=draw(orders) if kind == Kind.MEASURE else None,
        life=draw(st.none() | u32) if kind in (Kind.RETIRE, Kind.LEAVING) else None,
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
        entry(route=replace(ROUTE, hops=(Hop(node="x" * 256, first=0, end=1),))),
        entry(route=replace(ROUTE, hops=(Hop(node="x", first=0, end=2**16),))),
        entry(route=replace(ROUTE, block_digests=(bytes(15),))),
        entry(route=replace(ROUTE, sampling=replace(ROUTE.sampling, temperature=float("nan")))),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_it_is_sent(wrong: Entry) -> None:
    with pytest.raises(FrameError):
        encode(Message(kind=Kind.PROMPT, generation=1, entries=(wrong,)))


def test_the_size_of_every_dtype_is_known() -> None:
    assert set(DTYPE_BYTES) == set(DType)
