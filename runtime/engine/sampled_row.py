"""How a row of logits is sampled: what its request asks for, and its tokens so far."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runtime.engine.backend import Drawn
from runtime.engine.grammar import Grammar
from runtime.protocol.data import Sampling


class TokenHistory:
    """The tokens of a request so far, as penalties count them."""

    def __init__(self, sampling: Sampling) -> None:
        self._places: dict[int, int] = {}
        self._ids = np.zeros(64, dtype=np.int64)
        self._counts = np.zeros(64, dtype=np.float32)
        for token_id in sampling.prompt_ids:
            self._place(token_id)
        for token_id in sampling.emitted_ids:
            self.add(token_id)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The distinct tokens of prompt and answer."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> NDArray[np.float32]:
        """How often each of `ids` was sampled; 0 for those of the prompt alone."""
        return self._counts[: len(self._places)]

    def add(self, token_id: int) -> None:
        """Count `token_id`, which was sampled."""
        place = self._place(token_id)  # may replace the arrays
        self._counts[place] += 1

    def _place(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._ids):
            self._ids = np.pad(self._ids, (0, place))
            self._counts = np.pad(self._counts, (0, place))
        self._ids[place] = token_id
        return place


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRow:
    """How to sample from a row of logits, for the token at `position` of its sequence.

    `history`: for requests with penalties. `allowed`: one bit per token, the lowest of a byte
    first, set if its `grammar` lets the token come next; None: every token may.
    """

    sampling: Sampling
    position: int
    history: TokenHistory | None = None
    allowed: NDArray[np.uint8] | None = None
    grammar: Grammar | None = None

    @property
    def is_greedy(self) -> bool:
        return self.sampling.temperature <= 0

    @property
    def is_adjusted(self) -> bool:
        """True if biases, penalties or a grammar change the logits of the model."""
        return (
            self.history is not None or self.allowed is not None or bool(self.sampling.logit_bias)
        )

    def drawn(self, pick: Drawn) -> Drawn:
        """Take note of the token, and of the end of its grammar. Raises GrammarError."""
        if self.history is not None:
            self.history.add(pick.token_id)
        if self.grammar is None:
            return pick
        self.grammar.accept(pick.token_id)
        return replace(pick, is_final=self.grammar.is_complete)
