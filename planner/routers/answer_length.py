"""Predicts the length of an answer by model and API key (Xiong et al. §4.1, length predictor).

The paper draws from the distribution of lengths; a quantile of the last ones, by model and API key,
does not depend on luck. Both learn from answers that ended.
"""

import random
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import OrderedDict, deque

KEPT_LENGTHS = 200
_KEPT_ASKERS = 1000
_ENOUGH = 10  # answers of one API key before only its own are used


class _Lengths:
    """The last `KEPT_LENGTHS`, in order of arrival and of size."""

    def __init__(self) -> None:
        self._arrived: deque[int] = deque()
        self.ordered: list[int] = []

    def add(self, tokens: int) -> None:
        self._arrived.append(tokens)
        insort(self.ordered, tokens)
        if len(self._arrived) > KEPT_LENGTHS:
            oldest = self._arrived.popleft()
            del self.ordered[bisect_left(self.ordered, oldest)]


class AnswerLength(ABC):
    """Predicts the output tokens of requests from the lengths seen last of the same client.

    Where these are few, from those of all clients of the model; `first_tokens` before any.
    """

    def __init__(self, *, first_tokens: int) -> None:
        self._first = first_tokens
        self._models: dict[str, _Lengths] = {}
        self._askers: OrderedDict[tuple[str, str], _Lengths] = OrderedDict()

    def observe(self, model: str, asker: str, output_tokens: int) -> None:
        """An answer of `model` for `asker` ended well after that many tokens."""
        self._models.setdefault(model, _Lengths()).add(output_tokens)
        key = (model, asker)
        self._askers.setdefault(key, _Lengths()).add(output_tokens)
        self._askers.move_to_end(key)
        if len(self._askers) > _KEPT_ASKERS:
            self._askers.popitem(last=False)

    def predict(self, model: str, asker: str, *, max_tokens: int | None) -> int:
        """Output tokens of the next, 1 to `max_tokens`; None: the client set no limit."""
        seen = self._askers.get((model, asker))
        if seen is None or len(seen.ordered) < _ENOUGH:
            seen = self._models.get(model)
        tokens = self._first if seen is None else self._of(seen.ordered)
        return max(1, tokens if max_tokens is None else min(tokens, max_tokens))

    @abstractmethod
    def _of(self, ordered: list[int]) -> int:
        """Prediction from these lengths, at least one and sorted."""


class DrawnLength(AnswerLength):
    """A length that was seen, drawn at random (the paper's)."""

    def __init__(self, *, first_tokens: int, rng: random.Random) -> None:
        super().__init__(first_tokens=first_tokens)
        self._rng = rng

    def _of(self, ordered: list[int]) -> int:
        return self._rng.choice(ordered)


class QuantileLength(AnswerLength):
    """The `quantile` of the lengths seen last."""

    def __init__(self, *, first_tokens: int, quantile: float) -> None:
        """Raises ValueError for a quantile outside 0 to 1."""
        if not 0 <= quantile <= 1:
            raise ValueError(f"quantile {quantile} is not between 0 and 1")
        super().__init__(first_tokens=first_tokens)
        self._quantile = quantile

    def _of(self, ordered: list[int]) -> int:
        return ordered[min(len(ordered) - 1, int(self._quantile * len(ordered)))]
