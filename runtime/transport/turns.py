"""How long a process's own thread goes without taking messages: what tells that it hangs."""

from collections.abc import Callable

# Of the longest turn, what one more turn like it leaves: half is forgotten after 1400 turns.
_KEPT = 0.9995
_IDLE_TURN_S = 1e-3  # shorter turns are those of a process without work, and tell nothing
_SIZES = 33  # turns of no rows, of 1, of 2 and 3, of 4 to 7, ...
# While nothing is known of turns with rows. Slow machines take that long, shared ones longer.
_UNKNOWN_S = 2.5
_UNKNOWN_S_PER_ROW = 0.05


class Turns:
    """Owns how long the process has worked without asking for messages; heartbeats report it.

    A turn lasts from when messages were taken to when the next are asked for.

    Turns that run a step of many rows may last longer than those of few. One thread takes turns,
    another may ask; each value is written whole. Seconds of `clock`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self._rows = 0
        self._longest_s = [0.0] * _SIZES  # by size; 0: none was seen

    def begin(self) -> None:
        """Messages were taken, or there were none: the process goes on with what it has."""
        self._rows = 0
        self._began_s = self._clock()

    def works_on(self, rows: int) -> None:
        """The present turn runs a step of so many rows."""
        self._rows = rows

    def rest(self) -> None:
        """It asks for messages, and may wait for them as long as it likes."""
        began_s, self._began_s = self._began_s, None
        if began_s is not None:
            turn_s = self._clock() - began_s
            if turn_s > _IDLE_TURN_S:
                size = _size(self._rows)
                self._longest_s[size] = max(turn_s, _KEPT * self._longest_s[size])

    def so_far_s(self) -> float:
        """How long the present turn has lasted; 0 between turns."""
        began_s = self._began_s
        return 0.0 if began_s is None else max(0.0, self._clock() - began_s)

    @property
    def longest_s(self) -> float:
        """How long turns like the present one lasted at most; 0 if nobody knows.

        One of more rows than any before is taken to last as much longer as it has rows more, the
        most that it may; one of fewer, no longer than those of more.
        """
        rows = self._rows
        size = _size(rows)
        if self._longest_s[size] or not rows:
            return self._longest_s[size]
        for smaller in range(size - 1, 0, -1):
            if self._longest_s[smaller]:
                return self._longest_s[smaller] * float(2 ** (size - smaller))
        larger = (seconds for seconds in self._longest_s[size:] if seconds)
        return next(larger, _UNKNOWN_S + _UNKNOWN_S_PER_ROW * rows)


def _size(rows: int) -> int:
    return min(rows.bit_length(), _SIZES - 1)
