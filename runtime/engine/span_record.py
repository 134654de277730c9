"""What a stage remembers of when a request's rows came and were run, until it is asked."""

from array import array
from dataclasses import dataclass, field

import numpy as np

from runtime.protocol.stage_spans import ROUND_FIELDS, ChunkSpan, StageSpans

# 32 bytes a round: at most 32 KiB a request. Later tokens of a longer answer are not recorded.
MAX_ROUNDS = 1024
# A prompt in more chunks than this has the later ones drawn as one.
MAX_CHUNKS = 64


@dataclass(slots=True)
class SpanRecord:
    """Owns the times of one request on one stage; its sequence holds it.

    The hooks cost well under a microsecond each.
    """

    _first_s: float | None = None
    _last_s: float = 0.0
    _last_unseen_s: float = 0.0
    _tail_compute_s: float = 0.0
    _came_s: float = 0.0
    _unseen_s: float = 0.0
    _chunks: list[ChunkSpan] = field(default_factory=list)
    _rounds: "array[float]" = field(default_factory=lambda: array("d"))

    def came(self, now_s: float, *, unseen_s: float, is_prompt: bool) -> None:
        """Rows were taken in; they may have lain in the socket for up to `unseen_s`."""
        if not is_prompt:
            self._came_s, self._unseen_s = now_s, unseen_s
            return
        if self._first_s is None:
            self._first_s = now_s
        self._last_s, self._last_unseen_s = now_s, unseen_s
        self._tail_compute_s = 0.0

    def ran(self, *, began_s: float, ended_s: float, n_tokens: int, is_prompt: bool) -> None:
        """A step with rows of the request."""
        if not is_prompt:
            if len(self._rounds) < MAX_ROUNDS * ROUND_FIELDS:
                self._rounds.extend((self._came_s, self._unseen_s, began_s, ended_s))
            return
        self._tail_compute_s += ended_s - began_s
        if len(self._chunks) < MAX_CHUNKS:
            self._chunks.append(ChunkSpan(began_s, ended_s, n_tokens))
        else:
            first_began_s, _, tokens = self._chunks[-1]
            self._chunks[-1] = ChunkSpan(first_began_s, ended_s, tokens + n_tokens)

    def told(self, *, heard_s: float, unseen_s: float, now_s: float) -> StageSpans:
        """Everything so far, for a question heard at `heard_s` and answered `now_s`.

        It may have lain there for `unseen_s` before.
        """
        return StageSpans(
            heard_s=heard_s,
            heard_unseen_s=unseen_s,
            told_s=now_s,
            first_s=heard_s if self._first_s is None else self._first_s,
            last_s=heard_s if self._first_s is None else self._last_s,
            last_unseen_s=self._last_unseen_s,
            tail_compute_s=self._tail_compute_s,
            chunks=tuple(self._chunks),
            rounds=np.array(self._rounds, dtype=np.float64).reshape(-1, ROUND_FIELDS),
        )
