"""The payload of TRACE: when a stage took in and ran the rows of one request, on its own clock.

Little-endian: a head, the chunks of the prompt as doubles, then the rounds as floats relative to
`first_s`, so that a token costs 16 bytes.
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.protocol.data import FrameError

_TIMES = (
    "heard_s", "heard_unseen_s", "told_s", "first_s", "last_s", "last_unseen_s", "tail_compute_s",
)  # fmt: skip
_HEAD = struct.Struct("<dddddddII")  # these; chunks, rounds
_CHUNK = struct.Struct("<ddI")  # began, ended, tokens
ROUND_FIELDS = 4  # came, unseen, began, ended


class ChunkSpan(NamedTuple):
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
    times = (getattr(spans, name) for name in _TIMES)
    return b"".join(
        (
            _HEAD.pack(*times, len(spans.chunks), len(spans.rounds)),
            *(_CHUNK.pack(*chunk) for chunk in spans.chunks),
            relative.astype("<f4").tobytes(),
        )
    )


def unpack_spans(payload: bytes | bytearray | memoryview) -> StageSpans:
    """Raises FrameError when the payload is cut short, too long, or holds no numbers."""
    view = memoryview(payload).cast("B")
    try:
        *times, n_chunks, n_rounds = _HEAD.unpack_from(view)
    except struct.error as error:
        raise FrameError(f"TRACE carries {len(view)} bytes: {error}") from error
    rounds_at = _HEAD.size + n_chunks * _CHUNK.size
    if len(view) != rounds_at + n_rounds * ROUND_FIELDS * 4:
        raise FrameError(
            f"TRACE carries {len(view)} bytes for {n_chunks} chunks and {n_rounds} rounds"
        )
    rounds = np.frombuffer(view[rounds_at:], dtype="<f4").astype(np.float64)
    of_head = dict(zip(_TIMES, times, strict=True))
    first = of_head["first_s"]
    rounds = rounds.reshape(n_rounds, ROUND_FIELDS) + np.array([first, 0.0, first, first])
    chunks = tuple(ChunkSpan(*each) for each in _CHUNK.iter_unpack(view[_HEAD.size : rounds_at]))
    times += [time for chunk in chunks for time in chunk[:2]]
    if not (np.isfinite(times).all() and np.isfinite(rounds).all()):
        raise FrameError("TRACE carries times that are no numbers")
    return StageSpans(**of_head, chunks=chunks, rounds=rounds)
