"""Who waits for an instance, in the order they may go: a fair share for every API key.

The coordinator's line. Only the first in it looks for an instance; who got one, or gave up, calls
the next.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from planner.routers.base import RequestSize
from runtime.api.waiting_line import WaitingLine


@dataclass(slots=True, kw_only=True, eq=False)
class Waiter:
    """A request. `called`: it is the first, and an instance may have opened."""

    id: int
    owner: str
    size: RequestSize
    priority: int = 0
    called: asyncio.Event = field(default_factory=asyncio.Event)


class Turns:
    """Owns the requests that wait for an instance; the balance calls it.

    The line.
    """

    def __init__(self) -> None:
        self._line: WaitingLine[Waiter] = WaitingLine()

    def __len__(self) -> int:
        return len(self._line)

    def call(self) -> None:
        """An instance may have opened, for the first."""
        first = next(iter(self._line), None)
        if first is not None:
            first.called.set()

    def call_all(self) -> None:
        """No request needs to wait any more."""
        for waiter in self._line:
            waiter.called.set()

    def is_first(self, waiter: Waiter) -> bool:
        return next(iter(self._line), None) is waiter

    def passed(self, waiter: Waiter) -> None:
        """It found an instance without waiting, and has had that of its share."""
        self._line.pass_by(waiter, self._line.turn_of(waiter))

    @contextmanager
    def waiting(self, waiter: Waiter) -> Iterator[None]:
        """It stands in the line, unless it is `let_in` meanwhile."""
        self._line.add(waiter, self._line.turn_of(waiter))
        try:
            yield
        finally:
            if any(waiter is other for other in self._line):
                self._line.remove(waiter)
            self.call()

    def let_in(self, waiter: Waiter) -> None:
        """It found an instance."""
        self._line.let_in(waiter)
