"""Bytes a second of late: a sum that fades. Pure."""

import math


class RecentRate:
    """Bytes per second of the last moments; link schedulers call it.

    Times in seconds of one clock that does not go back; in `fades_s` a sum fades to 1/e.
    """

    def __init__(self, *, fades_s: float = 2.0) -> None:
        self._fades_s = fades_s
        self._faded_bytes = 0.0
        self._at_s = 0.0

    def add(self, n_bytes: int, *, now_s: float) -> None:
        """So many went."""
        self._faded_bytes = self._left(now_s) + n_bytes
        self._at_s = now_s

    def bytes_per_s(self, now_s: float) -> float:
        """Of the last seconds, the latest most; 0 once nothing went for long."""
        return self._left(now_s) / self._fades_s

    def _left(self, now_s: float) -> float:
        return self._faded_bytes * math.exp(-max(0.0, now_s - self._at_s) / self._fades_s)
