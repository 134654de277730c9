"""Feeders offer requests to the admission: as they arrive, or from a backlog."""

import math
from typing import Protocol

from planner.domain.placement import Placement
from planner.routers.base import RequestSize, Router
from planner.routers.kv_estimator import KvEstimator
from planner.routers.waiting import kept_for
from planner.simulator.admission import Admission
from planner.simulator.compiled_engine import Engine
from planner.simulator.engine import Occurrence
from planner.workload.demand import Arrivals, Backlog, Demand, prompts_in_flight
from planner.workload.request import InvalidWorkload, Request


class Feeder(Protocol):
    """Decides when requests are offered to the admission."""

    def due_s(self) -> float:
        """The latest time of the next call of `offer`; infinite for never."""

    def offer(self) -> None:
        """The time of `due_s` has come."""

    def idle(self) -> bool:
        """Whether no request waits or will come on its own."""

    def hear(self, occurrence: Occurrence, *, may_let_in: bool) -> None:
        """Called after the admission, which says whether waiting requests may be admitted."""


class ArrivalFeeder:
    """First come, first served in every component, as in the coordinator."""

    def __init__(
        self, arrivals: Arrivals, admission: Admission, router: Router, placement: Placement
    ) -> None:
        self._requests = arrivals.requests
        self._admission, self._router, self._placement = admission, router, placement
        self._nodes = frozenset(placement.layers)
        self._waiting: list[tuple[Request, RequestSize]] = []
        self._last_s = 0.0
        self._next = self._following()

    def due_s(self) -> float:
        return math.inf if self._next is None else self._next.arrival_s

    def offer(self) -> None:
        if self._next is not None:
            request, self._next = self._next, self._following()
            size = self._admission.size_of(request.lengths)
            kept: frozenset[str] = frozenset()
            for _, waiting_size in self._waiting:
                kept |= self._kept_for(waiting_size)
                if kept.issuperset(self._nodes):
                    break
            if not self._admission.try_to_admit(request, size, kept=kept):
                self._waiting.append((request, size))

    def hear(self, occurrence: Occurrence, *, may_let_in: bool) -> None:
        if may_let_in:
            self._let_in()

    def idle(self) -> bool:
        return self._next is None and not self._waiting

    def _let_in(self) -> None:
        kept: frozenset[str] = frozenset()
        position = 0
        while position < len(self._waiting) and not kept.issuperset(self._nodes):
            request, size = self._waiting[position]
            if self._admission.try_to_admit(request, size, kept=kept):
                del self._waiting[position]
            else:
                kept |= self._kept_for(size)
                position += 1

    def _kept_for(self, size: RequestSize) -> frozenset[str]:
        return kept_for(size, router=self._router, placement=self._placement)

    def _following(self) -> Request | None:
        request = next(self._requests, None)
        if request is not None:
            if request.arrival_s < self._last_s:
                raise InvalidWorkload(
                    f"a request arrives at {request.arrival_s:g} s after one at {self._last_s:g} s;"
                    " sort the requests by arrival"
                )
            self._last_s = request.arrival_s
        return request


class BacklogFeeder:
    """Offers one more request whenever a component has room and few prompts in flight."""

    def __init__(
        self, backlog: Backlog, admission: Admission, engine: Engine, placement: Placement
    ) -> None:
        self._lengths = backlog.lengths
        self._limit = backlog.prompts_in_flight or prompts_in_flight(len(placement.layers))
        self._concurrency = math.inf
        if backlog.requests_in_flight is not None:
            self._concurrency = backlog.requests_in_flight
        self._admission, self._engine = admission, engine
        self._components = placement.components or (frozenset(placement.layers),)
        self._full = False  # until something finishes there is no room, so why ask
        self._next = next(self._lengths, None)
        self._let_in()

    def due_s(self) -> float:
        return math.inf

    def offer(self) -> None:
        """A backlog waits for nothing but room."""

    def idle(self) -> bool:
        return self._next is None

    def hear(self, occurrence: Occurrence, *, may_let_in: bool) -> None:
        if may_let_in:
            self._full = False
        self._let_in()

    def _let_in(self) -> None:
        while self._next is not None and not self._full:
            busy = [
                component
                for number, component in enumerate(self._components)
                if self._admission.prompts[number] >= self._limit
            ]
            if len(busy) == len(self._components) or self._admission.running >= self._concurrency:
                return
            request = Request(arrival_s=self._engine.now, lengths=self._next)
            size = self._admission.size_of(request.lengths)
            kept = frozenset[str]().union(*busy)
            if not self._admission.try_to_admit(request, size, kept=kept):
                self._full = not busy
                return
            self._next = next(self._lengths, None)


def feeder_for(
    demand: Demand,
    *,
    admission: Admission,
    engine: Engine,
    router: Router,
    placement: Placement,
    kv: KvEstimator,
) -> Feeder:
    """The feeder of a kind of demand; a backlog's begins at once."""
    if isinstance(demand, Arrivals):
        return ArrivalFeeder(demand, admission, router, placement)
    return BacklogFeeder(demand, admission, engine, placement)
