"""Stop conditions of a search."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from planner.placers.base import CancelToken
from planner.placers.solvers.base import SolverName


class Stop:
    """A time limit and a cancel token, asked by every step of a search.

    It is a cancel token itself, and remembers a cancel: its own token is not asked again.
    """

    def __init__(
        self,
        *,
        time_limit_s: float,
        cancel: CancelToken,
        clock: Callable[[], float] = time.monotonic,
        started_s: float | None = None,
    ) -> None:
        self.clock = clock
        self._cancel = cancel
        self._was_cancelled = False
        self._started_s = clock() if started_s is None else started_s
        self.time_limit_s = time_limit_s

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self._started_s

    @property
    def left_s(self) -> float:
        """Seconds of the time limit that remain; below 0 when it is over."""
        return self.time_limit_s - self.elapsed_s

    def is_cancelled(self) -> bool:
        self._was_cancelled = self._was_cancelled or self._cancel.is_cancelled()
        return self._was_cancelled

    def is_over(self) -> bool:
        return self.is_cancelled() or self.left_s <= 0

    def until(self, elapsed_s: float) -> "Stop":
        """The same with another time limit, counted from the same start."""
        return Stop(
            time_limit_s=min(elapsed_s, self.time_limit_s),
            cancel=self,
            clock=self.clock,
            started_s=self._started_s,
        )

    def earlier(self, by_s: float) -> "Stop":
        """The same, but that it ends by so many seconds earlier."""
        return self.until(self.time_limit_s - by_s)

    def within(self, seconds: float) -> "Stop":
        """The same, but that it ends so many seconds from now at the latest."""
        return self.until(self.elapsed_s + seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """Solver and limits of a search's integer programs; `stop` is checked at least every 50 ms.

    `used` is called with the solver, in words, of every program that found something.
    """

    seed: int
    solver: SolverName
    stop: Stop
    used: Callable[[str], None] = lambda _: None
