"""Requests that wait, in the order in which they may run: a fair share for every API key.

Start-time fair queueing (Goyal, Vin and Cheng 1996) by tokens: a request's start is where its key's
last one ended, or the start of the request that was let in last if that is later. So a key that
sends a thousand requests at once waits for its own, and one that sends a few hardly waits; with one
key it is first come, first served. What is given up takes nothing of its key's share: else a key
whose clients lose patience would never go. A lower `priority` goes before, regardless of shares.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from planner.routers.base import RequestSize

_OWNERS_KEPT = 1000

Turn = tuple[int, float, int]  # priority, start in tokens, number of its arrival


class Waiting(Protocol):
    """What is known of a request that waits: whose share it takes, and how much of it. One with a
    lower `priority` goes before it."""

    id: int
    owner: str
    priority: int
    size: RequestSize


R = TypeVar("R", bound=Waiting)


@dataclass(slots=True, kw_only=True)
class _Place(Generic[R]):
    """Of a request that takes `tokens` of its key's share, and cannot start before `least_start`,
    where the line was when it came."""

    request: R
    turn: Turn
    least_start: float
    tokens: int


class WaitingLine(Generic[R]):
    """Owns the order in which requests wait; the admission of pipelines and of instances call it.

    Requests that restarted stand in front of all others, in the order they were put there.
    """

    def __init__(self) -> None:
        self._front: list[R] = []
        self._line: list[_Place[R]] = []
        self._waiting_of: Counter[str] = Counter()
        self._ends: dict[str, float] = {}  # of each owner: where its next request may start
        self._now = 0.0  # the start of the request that was let in last, in tokens
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._front) + len(self._line)

    def __iter__(self) -> Iterator[R]:
        yield from self._front
        for place in self._line:
            yield place.request

    def before(self, turn: Turn) -> Iterator[R]:
        """Those whose turn comes before `turn`."""
        yield from self._front
        for place in self._line:
            if place.turn > turn:
                return
            yield place.request

    def turn_of(self, request: R) -> Turn:
        """Where a request that has just come would stand."""
        self._arrivals += 1
        start = max(self._now, self._ends.get(request.owner, 0.0))
        return request.priority, start, self._arrivals

    def has_place(self, owner: str, *, most: int) -> bool:
        """Whether one more of `owner` may wait where `most` may: see the function."""
        return has_place(self._waiting_of, owner, here=len(self), most=most)

    def waiting_of(self, owner: str) -> int:
        return self._waiting_of[owner]

    def add(self, request: R, turn: Turn) -> None:
        self._charge(request, turn)
        self._waiting_of[request.owner] += 1
        place = _Place(
            request=request, turn=turn, least_start=self._now, tokens=request.size.total_tokens
        )
        insort(self._line, place, key=_turn)

    def pass_by(self, request: R, turn: Turn) -> None:
        """It was let in without waiting."""
        self._charge(request, turn)
        self._let_in(turn)

    def add_front(self, request: R) -> None:
        """It ran and restarts: in front of all others."""
        self._front.insert(0, request)

    def let_in(self, request: R) -> None:
        """It runs. Raises ValueError if it does not wait."""
        place = self._take(request)
        if place is not None:
            self._let_in(place.turn)

    def remove(self, request: R) -> None:
        """It has ended. Raises ValueError if it does not wait."""
        place = self._take(request)
        if place is not None:
            self._move_up_behind(place)

    def _take(self, request: R) -> _Place[R] | None:
        """Its place; None if it stood in front."""
        if request in self._front:
            self._front.remove(request)
            return None
        for index, place in enumerate(self._line):
            if place.request is request:
                del self._line[index]
                self._waiting_of[request.owner] -= 1
                if not self._waiting_of[request.owner]:
                    del self._waiting_of[request.owner]
                return place
        raise ValueError(f"request {request.id} does not wait")

    def _move_up_behind(self, gone: _Place[R]) -> None:
        """Later requests of its key start earlier by what it does not take."""
        owner, spared = gone.request.owner, float(gone.tokens)
        number_gone = gone.turn[2]
        later = [place for place in self._line if place.request.owner == owner]
        for place in sorted(later, key=lambda place: place.turn[2]):
            priority, start, number = place.turn
            if number > number_gone:
                spared = min(spared, start - place.least_start)
                place.turn = priority, start - spared, number
        if owner in self._ends:
            self._ends[owner] -= spared
        self._line.sort(key=_turn)

    def _charge(self, request: R, turn: Turn) -> None:
        self._ends[request.owner] = turn[1] + request.size.total_tokens

    def _let_in(self, turn: Turn) -> None:
        self._now = max(self._now, turn[1])
        if len(self._ends) > _OWNERS_KEPT:  # those that are owed nothing and owe nothing
            self._ends = {owner: end for owner, end in self._ends.items() if end > self._now}


def has_place(here_of: Mapping[str, int], owner: str, *, here: int, most: int) -> bool:
    """Whether one more request of `owner` may come where `most` may be, and `here` are.

    A key with less than an equal part of the places may have one even when others have taken them
    all, so that no key can shut others out; all together have at most twice as many.
    """
    if here < most:
        return True
    part = max(1, most // len(here_of.keys() | {owner}))
    return here_of.get(owner, 0) < part and here < 2 * most


def _turn(place: _Place[R]) -> Turn:
    return place.turn
