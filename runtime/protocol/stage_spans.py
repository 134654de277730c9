"""The payload of TRACE: when a stage took in and ran the rows of one request, on its own clock.

Little-endian: a head, the chunks of the prompt as doubles, then the rounds as floats relative to
`first_s`, so that a token costs 16 bytes.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.protocol.frame_error import FrameError

# heard, heard unseen, told, first, last, last unseen, tail compute; chunks, rounds
_HEAD = struct.Struct("<dddddddII")
_CHUNK = struct.Struct("<ddI")  # began, ended, tokens
ROUND_FIELDS = 4  # came, unseen, began, ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpan:
    """A step that held `n_tokens` rows of the prompt; seconds of the stage's clock."""

    began_s: float
    ended_s: float
    n_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpans:
    """One request on one stage; seconds of the stage's monotonic clock.

    The prompt's first rows were taken in at `first_s`, its last at `last_s`, which may have come
    up to `last_unseen_s` earlier, while the stage computed. `tail_compute_s` of its own steps were
    after that. `rounds` is [round, 4]: rows of one decode came, for how long at most they may have
    lain there unseen, their step began, it ended. `heard_s` and `told_s` are when the stage was
    asked for this, which may have lain there for `heard_unseen_s`, and when it answered.
    """

    heard_s: float
    heard_unseen_s: float
    told_s: float
    first_s: float
    last_s: float
    last_unseen_s: float
    tail_compute_s: float
    chunks: tuple[ChunkSpan, ...]
    rounds: NDArray[np.float64]


def pack_spans(spans: StageSpans) -> bytes:
    """As a payload."""
    relative = spans.rounds - np.array([spans.first_s, 0.0, spans.first_s, spans.first_s])
    return b"".join(
        (
            _HEAD.pack(
                spans.heard_s,
                spans.heard_unseen_s,
                spans.told_s,
                spans.first_s,
                spans.last_s,
                spans.last_unseen_s,
                spans.tail_compute_s,
                len(spans.chunks),
                len(spans.rounds),
            ),
            *(_CHUNK.pack(chunk.began_s, chunk.ended_s, chunk.n_tokens) for chunk in spans.chunks),
            relative.astype("<f4").tobytes(),
        )
    )


def unpack_spans(payload: bytes | bytearray | memoryview) -> StageSpans:
    """Raises FrameError when the payload is cut short, too long, or holds no numbers."""
    view = memoryview(payload).cast("B")
    try:
        heard, hidden, told, first, last, unseen, tail, n_chunks, n_rounds = _HEAD.unpack_from(view)
    except struct.error as error:
        raise FrameError(f"TRACE carries {len(view)} bytes: {error}") from error
    rounds_at = _HEAD.size + n_chunks * _CHUNK.size
    if len(view) != rounds_at + n_rounds * ROUND_FIELDS * 4:
        raise FrameError(
            f"TRACE carries {len(view)} bytes for {n_chunks} chunks and {n_rounds} rounds"
        )
    rounds = np.frombuffer(view[rounds_at:], dtype="<f4").astype(np.float64)
    rounds = rounds.reshape(n_rounds, ROUND_FIELDS) + np.array([first, 0.0, first, first])
    chunks = tuple(
        ChunkSpan(began_s=began, ended_s=ended, n_tokens=n_tokens)
        for began, ended, n_tokens in _CHUNK.iter_unpack(view[_HEAD.size : rounds_at])
    )
    times = [heard, hidden, told, first, last, unseen, tail]
    times += [time for chunk in chunks for time in (chunk.began_s, chunk.ended_s)]
    if not (np.isfinite(times).all() and np.isfinite(rounds).all()):
        raise FrameError("TRACE carries times that are no numbers")
    return StageSpans(
        heard_s=heard,
        heard_unseen_s=hidden,
        told_s=told,
        first_s=first,
        last_s=last,
        last_unseen_s=unseen,
        tail_compute_s=tail,
        chunks=chunks,
        rounds=rounds,
    )
