"""How long to wait before trying again what failed."""

import random


class Backoff:
    """Waits that double from `first_s` to `limit_s`, each shortened by up to half at random.

    The jitter keeps many processes from coming back in one moment.
    """

    def __init__(self, *, rng: random.Random, first_s: float = 0.25, limit_s: float = 15.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._limit_s = limit_s
        self._ceiling_s = first_s

    def next_s(self) -> float:
        """Seconds to wait now."""
        ceiling_s = self._ceiling_s
        self._ceiling_s = min(2 * ceiling_s, self._limit_s)
        return self._rng.uniform(ceiling_s / 2, ceiling_s)

    def reset(self) -> None:
        """After a success."""
        self._ceiling_s = self._first_s
