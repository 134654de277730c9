"""Rates of tokens, made of counters that only grow."""

import math
from collections.abc import Callable


class MeasuredRates:
    """Tokens per second of each node, smoothed over about `memory_s` seconds.

    Reads `total_of(node)` when asked, at most once in `memory_s` / 10. A lower total means a reset:
    counting restarts from there.
    """

    def __init__(
        self,
        *,
        total_of: Callable[[str], float],
        clock: Callable[[], float],
        memory_s: float = 10.0,
    ) -> None:
        if not memory_s > 0:
            raise ValueError(f"memory_s is {memory_s}; it must be greater than 0")
        self._total_of = total_of
        self._clock = clock
        self._memory_s = memory_s
        self._seen: dict[str, tuple[float, float]] = {}  # node -> when, total
        self._rates: dict[str, float] = {}

    def tokens_per_s(self, node: str) -> float | None:
        """Smoothed tokens/s; None until something was counted over a tenth of the memory."""
        now = self._clock()
        if node not in self._seen:
            self._seen[node] = (now, self._total_of(node))
            return None
        then, before = self._seen[node]
        elapsed_s = now - then
        if elapsed_s >= self._memory_s / 10:
            total = self._total_of(node)
            if total >= before:
                self._take(node, (total - before) / elapsed_s, elapsed_s)
            self._seen[node] = (now, total)
        return self._rates.get(node)

    def _take(self, node: str, rate: float, elapsed_s: float) -> None:
        if node not in self._rates:
            if rate > 0:
                self._rates[node] = rate
            return
        forgotten = 1.0 - math.exp(-elapsed_s / self._memory_s)
        self._rates[node] += forgotten * (rate - self._rates[node])
