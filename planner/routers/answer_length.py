"""How long an answer will be, by model and by who asks (Xiong et al. §4.1, the length predictor).

The paper draws from the distribution of lengths; a quantile of the last ones, by model and API key,
does not depend on luck. Both learn from answers that ended.
"""

import random
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from typing import Protocol

KEPT_LENGTHS = 200
_KEPT_ASKERS = 1000
_ENOUGH = 10  # answers of one asker before theirs alone are looked at


class AnswerLength(Protocol):
    """Predicts the output tokens of requests."""

    def observe(self, model: str, asker: str, output_tokens: int) -> None:
        """An answer of `model` for `asker` ended well after that many tokens."""

    def predict(self, model: str, asker: str, *, max_tokens: int | None) -> int:
        """Output tokens of the next, 1 to `max_tokens`; None: the client set no limit."""


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


class _History:
    """Lengths of every model, and of those who asked it last."""

    def __init__(self) -> None:
        self._models: dict[str, _Lengths] = {}
        self._askers: OrderedDict[tuple[str, str], _Lengths] = OrderedDict()

    def add(self, model: str, asker: str, tokens: int) -> None:
        self._models.setdefault(model, _Lengths()).add(tokens)
        key = (model, asker)
        self._askers.setdefault(key, _Lengths()).add(tokens)
        self._askers.move_to_end(key)
        if len(self._askers) > _KEPT_ASKERS:
            self._askers.popitem(last=False)

    def best(self, model: str, asker: str) -> list[int]:
        """Of the asker where there are enough, else of all that asked the model; may be empty."""
        mine = self._askers.get((model, asker))
        if mine is not None and len(mine.ordered) >= _ENOUGH:
            return mine.ordered
        return self._models[model].ordered if model in self._models else []


class DrawnLength:
    """A length that was seen, drawn at random (the paper's); `first_tokens` before there is any."""

    def __init__(self, *, first_tokens: int, rng: random.Random) -> None:
        self._first = first_tokens
        self._rng = rng
        self._history = _History()

    def observe(self, model: str, asker: str, output_tokens: int) -> None:
        self._history.add(model, asker, output_tokens)

    def predict(self, model: str, asker: str, *, max_tokens: int | None) -> int:
        seen = self._history.best(model, asker)
        return _limited(self._rng.choice(seen) if seen else self._first, max_tokens)


class QuantileLength:
    """The `quantile` of the lengths seen last; `first_tokens` before there is any."""

    def __init__(self, *, first_tokens: int, quantile: float) -> None:
        """Raises ValueError for a quantile outside 0 to 1."""
        if not 0 <= quantile <= 1:
            raise ValueError(f"quantile {quantile} is not between 0 and 1")
        self._first = first_tokens
        self._quantile = quantile
        self._history = _History()

    def observe(self, model: str, asker: str, output_tokens: int) -> None:
        self._history.add(model, asker, output_tokens)

    def predict(self, model: str, asker: str, *, max_tokens: int | None) -> int:
        seen = self._history.best(model, asker)
        if not seen:
            return _limited(self._first, max_tokens)
        return _limited(seen[min(len(seen) - 1, int(self._quantile * len(seen)))], max_tokens)


def _limited(tokens: int, max_tokens: int | None) -> int:
    return max(1, tokens if max_tokens is None else min(tokens, max_tokens))
