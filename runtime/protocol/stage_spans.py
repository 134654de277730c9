"""The payload of TRACE: when a stage took in and ran the rows of one request, on its own clock.

A line of JSON, then the rounds as little-endian floats relative to `first_s`, so that a token costs
16 bytes.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, FiniteFloat, TypeAdapter
from pydantic_core import from_json

from runtime.protocol.data import FrameError
from runtime.protocol.message import Uint32

ROUND_FIELDS = 4  # came, unseen, began, ended


class ChunkSpan(NamedTuple):
    """A step that held `n_tokens` rows of the prompt; seconds of the stage's clock."""

    began_s: FiniteFloat
    ended_s: FiniteFloat
    n_tokens: Uint32


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpans:
    """One request on one stage; seconds of the stage's monotonic clock.

    The prompt's first rows were taken in at `first_s`, its last at `last_s`, which may have come
    up to `last_unseen_s` earlier, while the stage computed. `tail_compute_s` of its own steps were
    after that. `rounds` is [round, 4]: rows of one decode came, for how long at most they may have
    lain there unseen, their step began, it ended. `heard_s` and `told_s` are when the stage was
    asked for this, which may have lain there for `heard_unseen_s`, and when it answered.
    """

    __pydantic_config__: ClassVar = ConfigDict(
        extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True, defer_build=True
    )

    heard_s: float
    heard_unseen_s: float
    told_s: float
    first_s: float
    last_s: float
    last_unseen_s: float
    tail_compute_s: float
    chunks: tuple[ChunkSpan, ...]
    rounds: NDArray[np.float64]


_SPANS = TypeAdapter(StageSpans)


def pack_spans(spans: StageSpans) -> bytes:
    """As a payload."""
    line = _SPANS.dump_json(spans, exclude={"rounds"})
    return line + b"\n" + (spans.rounds - _origin(spans.first_s)).astype("<f4").tobytes()


def unpack_spans(payload: bytes | bytearray | memoryview) -> StageSpans:
    """Raises FrameError when the payload is cut short, too long, or holds no numbers."""
    line, _, numbers = bytes(payload).partition(b"\n")
    try:
        rounds = np.frombuffer(numbers, dtype="<f4").astype(np.float64).reshape(-1, ROUND_FIELDS)
        if not np.isfinite(rounds).all():
            raise ValueError("times of rounds")
        spans = _SPANS.validate_python({**from_json(line), "rounds": rounds})
    except (ValueError, TypeError) as error:
        raise FrameError(
            f"TRACE carries {len(payload)} bytes that are no spans, or times that are no numbers: "
            f"{error}"
        ) from error
    return replace(spans, rounds=rounds + _origin(spans.first_s))


def _origin(first_s: float) -> NDArray[np.float64]:
    """What the times of a round are relative to; `unseen` is a duration."""
    return np.array([first_s, 0.0, first_s, first_s])
