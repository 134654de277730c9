"""How long a process's own thread goes without taking messages: what tells that it hangs."""

from collections.abc import Callable

# Of the longest turn, what one more turn leaves: half is forgotten after 1400 turns.
_KEPT = 0.9995
_IDLE_TURN_S = 1e-3  # shorter turns are those of a process without work, and tell nothing


class Turns:
    """A turn lasts from when messages were taken to when the next are asked for.

    One thread takes turns, another may ask; each attribute is written whole. Seconds of `clock`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self.longest_s = 0.0

    def begin(self) -> None:
        """Messages were taken, or there were none: the process goes on with what it has."""
        self._began_s = self._clock()

    def rest(self) -> None:
        """It asks for messages, and may wait for them as long as it likes."""
        began_s, self._began_s = self._began_s, None
        if began_s is not None:
            turn_s = self._clock() - began_s
            if turn_s > _IDLE_TURN_S:
                self.longest_s = max(turn_s, _KEPT * self.longest_s)

    def so_far_s(self) -> float:
        """How long the present turn has lasted; 0 between turns."""
        began_s = self._began_s
        return 0.0 if began_s is None else max(0.0, self._clock() - began_s)
