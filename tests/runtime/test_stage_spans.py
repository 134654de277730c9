"""What a stage tells of the requests it ran, in virtual time."""

import numpy as np
import pytest

from runtime.engine.span_record import MAX_CHUNKS, MAX_ROUNDS, SpanRecord
from runtime.protocol.data import FrameError
from runtime.protocol.stage_spans import StageSpans, pack_spans, unpack_spans


def record(*, chunks: int = 2, rounds: int = 3) -> SpanRecord:
    """Prompt rows at 10 and 11, chunks of 1 s, then a round every second."""
    spans = SpanRecord()
    spans.came(10.0, unseen_s=0.0, is_prompt=True)
    spans.ran(began_s=10.5, ended_s=11.0, n_tokens=8, is_prompt=True)
    spans.came(11.0, unseen_s=0.25, is_prompt=True)
    for number in range(chunks - 1):
        spans.ran(began_s=12.0 + number, ended_s=13.0 + number, n_tokens=4, is_prompt=True)
    for number in range(rounds):
        spans.came(20.0 + number, unseen_s=0.125, is_prompt=False)
        spans.ran(began_s=20.25 + number, ended_s=20.5 + number, n_tokens=1, is_prompt=False)
    return spans


def test_a_record_tells_when_rows_came_and_ran() -> None:
    spans = record().told(heard_s=30.0, unseen_s=0.5, now_s=31.0)
    assert (spans.first_s, spans.last_s, spans.last_unseen_s) == (10.0, 11.0, 0.25)
    assert spans.tail_compute_s == 1.0  # the chunk after the last rows had come
    assert [chunk.n_tokens for chunk in spans.chunks] == [8, 4]
    assert spans.rounds.tolist() == [[20.0 + n, 0.125, 20.25 + n, 20.5 + n] for n in range(3)]
    assert (spans.heard_s, spans.told_s) == (30.0, 31.0)


def test_a_payload_says_what_the_record_said() -> None:
    told = record().told(heard_s=30.0, unseen_s=0.5, now_s=31.0)
    read = unpack_spans(pack_spans(told))
    assert read.chunks == told.chunks
    np.testing.assert_allclose(read.rounds, told.rounds, atol=1e-5)
    for name in StageSpans.__slots__:
        if name not in ("chunks", "rounds"):
            assert getattr(read, name) == getattr(told, name)


def test_a_token_costs_sixteen_bytes_on_the_wire() -> None:
    one, many = (
        len(pack_spans(record(rounds=rounds).told(heard_s=30.0, unseen_s=0.5, now_s=31.0)))
        for rounds in (1, 101)
    )
    assert many - one == 100 * 16


def test_a_long_request_is_remembered_within_bounds() -> None:
    spans = record(chunks=3 * MAX_CHUNKS, rounds=2 * MAX_ROUNDS).told(
        heard_s=9e9, unseen_s=0.0, now_s=9e9
    )
    assert len(spans.chunks) == MAX_CHUNKS
    assert sum(chunk.n_tokens for chunk in spans.chunks) == 8 + 4 * (3 * MAX_CHUNKS - 1)
    assert len(spans.rounds) == MAX_ROUNDS


def test_a_request_whose_rows_never_came_has_no_time() -> None:
    spans = SpanRecord().told(heard_s=30.0, unseen_s=0.5, now_s=31.0)
    assert (spans.first_s, spans.last_s, spans.chunks, len(spans.rounds)) == (30.0, 30.0, (), 0)


@pytest.mark.parametrize("cut", [0, 10, 56, -1])
def test_a_payload_that_is_cut_short_is_refused(cut: int) -> None:
    payload = pack_spans(record().told(heard_s=30.0, unseen_s=0.5, now_s=31.0))
    with pytest.raises(FrameError, match="TRACE carries"):
        unpack_spans(payload[:cut])


def test_times_that_are_no_numbers_are_refused() -> None:
    payload = pack_spans(record().told(heard_s=float("nan"), unseen_s=0.0, now_s=31.0))
    with pytest.raises(FrameError, match="no numbers"):
        unpack_spans(payload)


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"null"])
def test_a_chunk_without_a_time_is_refused(number: bytes) -> None:
    payload = pack_spans(record().told(heard_s=30.0, unseen_s=0.5, now_s=31.0))
    with pytest.raises(FrameError, match="no numbers"):
        unpack_spans(payload.replace(b"10.5", number, 1))
