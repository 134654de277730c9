"""Who waits for a pipeline, in the order they may go: a fair share for every API key.

Start-time fair queueing (Goyal, Vin and Cheng 1996) by tokens: a request's start is where its key's
last one ended, or the start of whoever was let in last if that is later. So a key that sends a
thousand requests at once waits for its own, and one that sends a few hardly waits; with one key it
is first come, first served. A lower `priority` goes before, whatever the shares.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from planner.routers.base import RequestSize

_OWNERS_KEPT = 1000

Turn = tuple[int, float, int]  # priority, start in tokens, number of its arrival


class Waiting(Protocol):
    """What is known of a request that waits."""

    @property
    def id(self) -> int:
        """Its own."""

    @property
    def owner(self) -> str:
        """Whose share it takes."""

    @property
    def priority(self) -> int:
        """Who has a lower one goes before it."""

    @property
    def size(self) -> RequestSize:
        """What it takes of the share."""


R = TypeVar("R", bound=Waiting)


class WaitingLine(Generic[R]):
    """Requests that began anew stand in front of all others, in the order they were put there."""

    def __init__(self) -> None:
        self._front: list[R] = []
        self._line: list[tuple[Turn, R]] = []
        self._waiting_of: Counter[str] = Counter()
        self._ends: dict[str, float] = {}  # of each owner: where its next request may start
        self._now = 0.0  # the start of whoever was let in last, in tokens
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._front) + len(self._line)

    def __iter__(self) -> Iterator[R]:
        yield from self._front
        for _, request in self._line:
            yield request

    def before(self, turn: Turn) -> Iterator[R]:
        """Those whose turn comes before `turn`."""
        yield from self._front
        for other, request in self._line:
            if other > turn:
                return
            yield request

    def turn_of(self, request: R) -> Turn:
        """Where a request that has just come would stand."""
        self._arrivals += 1
        start = max(self._now, self._ends.get(request.owner, 0.0))
        return request.priority, start, self._arrivals

    def has_place(self, owner: str, *, most: int) -> bool:
        """Whether one more of `owner` may wait where `most` may.

        Whoever has less than an equal part of these may even when others have taken them all, so
        that nobody can shut others out; all together at most twice as many wait.
        """
        if len(self) < most:
            return True
        owners = len(self._waiting_of.keys() | {owner})
        return self._waiting_of[owner] < max(1, most // owners) and len(self) < 2 * most

    def waiting_of(self, owner: str) -> int:
        return self._waiting_of[owner]

    def add(self, request: R, turn: Turn) -> None:
        self._charge(request, turn)
        self._waiting_of[request.owner] += 1
        insort(self._line, (turn, request), key=lambda waiting: waiting[0])

    def pass_by(self, request: R, turn: Turn) -> None:
        """It was let in without waiting."""
        self._charge(request, turn)
        self._let_in(turn)

    def add_front(self, request: R) -> None:
        """It ran and begins anew: in front of all others."""
        self._front.insert(0, request)

    def let_in(self, request: R) -> None:
        """It runs. Raises ValueError if it does not wait."""
        turn = self._take(request)
        if turn is not None:
            self._let_in(turn)

    def remove(self, request: R) -> None:
        """It has ended. Raises ValueError if it does not wait."""
        self._take(request)

    def _take(self, request: R) -> Turn | None:
        """Its turn; None if it stood in front."""
        if request in self._front:
            self._front.remove(request)
            return None
        for index, (turn, other) in enumerate(self._line):
            if other is request:
                del self._line[index]
                self._waiting_of[request.owner] -= 1
                if not self._waiting_of[request.owner]:
                    del self._waiting_of[request.owner]
                return turn
        raise ValueError(f"request {request.id} does not wait")

    def _charge(self, request: R, turn: Turn) -> None:
        self._ends[request.owner] = turn[1] + request.size.total_tokens

    def _let_in(self, turn: Turn) -> None:
        self._now = max(self._now, turn[1])
        if len(self._ends) > _OWNERS_KEPT:  # those that are owed nothing and owe nothing
            self._ends = {owner: end for owner, end in self._ends.items() if end > self._now}
