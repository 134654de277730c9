"""Which instance answers a request: the router's choice among those that are ready.

One that fails is left alone for a while that doubles with every failure in a row; then it is tried
with one request at a time, until one begins to be answered. Requests that must wait stand in the
coordinator's line, a fair share for every API key: only the first in it looks for an instance, and
calls the next when it got one or gave up.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from planner.routers.base import InstanceRouter, RequestSize
from runtime.api.waiting_line import WaitingLine, has_place
from runtime.instances.health import Condition, without_log
from runtime.instances.instance import Instance

FIRST_REST_S = 1.0
LONGEST_REST_S = 60.0
SOON_S = 10.0  # what starts for longer is not waited for: models load for minutes
_MOST_OF_A_STATE = 300
_WAITED_FOR = frozenset({Condition.READY, Condition.DRAINING})  # it rests, or serving is paused


@dataclass(slots=True, kw_only=True, eq=False)
class Waiter:
    """A request. `called`: it is the first, and an instance may have opened."""

    id: int
    owner: str
    size: RequestSize
    priority: int = 0
    called: asyncio.Event = field(default_factory=asyncio.Event)


class Turns(WaitingLine[Waiter]):
    """Owns the requests that wait for an instance, and calls the first; the answers stand in it."""

    def call(self) -> None:
        """An instance may have opened, for the first."""
        first = next(iter(self), None)
        if first is not None:
            first.called.set()

    def call_all(self) -> None:
        """No request needs to wait any more."""
        for waiter in self:
            waiter.called.set()

    def is_first(self, waiter: Waiter) -> bool:
        return next(iter(self), None) is waiter

    @contextmanager
    def waiting(self, waiter: Waiter) -> Iterator[None]:
        """It stands in the line, unless it is `let_in` meanwhile."""
        self.add(waiter, self.turn_of(waiter))
        try:
            yield
        finally:
            if any(waiter is other for other in self):
                self.remove(waiter)
            self.call()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Of an instance that failed `failures` times in a row, and is left alone `until_s`."""

    failures: int
    until_s: float
    reason: str


class Balance:
    """Owns the requests at all instances and chooses one for each; the proxy's answers call it.

    Knows every request under way; `router` is told of each.
    """

    def __init__(
        self,
        instances: Mapping[str, Instance],
        *,
        router: InstanceRouter,
        clock: Callable[[], float],
        most_requests: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`most_requests`: of an instance at once; without a number, as many as come."""
        self._instances = instances
        self._router = router
        self._clock = clock
        self._most_requests = most_requests
        self._troubles: dict[str, Trouble] = {}
        self._suspicions: dict[str, bytes] = {}  # digest of the request it said it failed of
        self._under_way: dict[int, str] = {}
        self._counts: Counter[str] = Counter()
        self._trials: dict[str, int] = {}  # the request that tries one that failed
        self.answered: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.output_tokens: Counter[str] = Counter()
        self._produced_s: dict[str, float] = {}
        self.turns = Turns()
        self._here: Counter[str] = Counter()
        self.is_closed = False  # no new requests; those that wait for an instance end
        self.cut = asyncio.Event()  # requests that are still here end

    @property
    def here(self) -> int:
        """Requests that were sent to an instance, or wait for one."""
        return self._here.total()

    def has_place(self, owner: str, *, most: int) -> bool:
        """Whether one more of `owner` may come where `most` may be: see `waiting_line`."""
        return has_place(self._here, owner, here=self.here, most=most)

    @contextmanager
    def visit(self, owner: str = "") -> Iterator[None]:
        """A request of that key is here."""
        self._here[owner] += 1
        try:
            yield
        finally:
            self._here[owner] -= 1
            if not self._here[owner]:
                del self._here[owner]

    def close(self) -> None:
        self.is_closed = True
        self.turns.call_all()

    @property
    def under_way(self) -> int:
        """Requests sent to any instance."""
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """Requests that no instance has."""
        return self.here - self.under_way

    def under_way_at(self, name: str) -> int:
        return self._counts[name]

    def produced_s(self, name: str) -> float | None:
        """When it last gave a token to a request; None if never."""
        return self._produced_s.get(name)

    def trouble_of(self, name: str) -> Trouble | None:
        return self._troubles.get(name)

    def open_instances(self) -> list[str]:
        """Those that take requests, though perhaps not one more now."""
        closed = self._closed()
        return [name for name in self._instances if name not in closed]

    def opens_within_s(self, most_s: float) -> float:
        """How long it may be of use to wait for an instance, where `most_s` is waited at most."""
        return max(map(partial(self._opens_within_s, most_s=most_s), self._instances.values()))

    @property
    def opens_in_s(self) -> float | None:
        """When the first is expected to take requests; None if nothing is known."""
        known = (
            0.0 if one.state.condition is Condition.READY else one.ready_in_s
            for one in self._instances.values()
        )
        return min((left_s for left_s in known if left_s is not None), default=None)

    def closed_words(self) -> dict[str, str]:
        """How those are that take no requests."""
        return {name: self._closed_words(name) for name in sorted(self._closed())}

    def choose(self, request: int, size: RequestSize, *, without: Collection[str]) -> str | None:
        """The instance, which then has the request until `end`; None if none is open."""
        chosen = self._router.choose(
            request, size, masked=self._closed() | self._full() | set(without)
        )
        if chosen is not None:
            self._under_way[request] = chosen
            self._counts[chosen] += 1
            if chosen in self._troubles:
                self._trials[chosen] = request
        return chosen

    def end(self, request: int) -> None:
        """It is answered, failed, or its client has gone."""
        name = self._under_way.pop(request)
        self._counts[name] -= 1
        if self._trials.get(name) == request:
            del self._trials[name]
        self._router.end(request)
        self.turns.call()

    def failed(self, name: str, reason: str) -> None:
        """It did not answer a request as it should."""
        self.failures[name] += 1
        before = self._troubles.get(name)
        now_s = self._clock()
        if before is not None and now_s < before.until_s:
            return  # those that were sent with the one that failed first
        failures = 1 if before is None else before.failures + 1
        rest_s = min(LONGEST_REST_S, FIRST_REST_S * 2 ** min(failures - 1, 30))
        self._troubles[name] = Trouble(failures=failures, until_s=now_s + rest_s, reason=reason)

    def errored(self, name: str, reason: str, *, digest: bytes) -> None:
        """It says that it failed of a request, `digest` of what was asked.

        That may be the request's fault: only a different one that fails there too makes it rest.
        """
        if self._suspicions.setdefault(name, digest) != digest or name in self._troubles:
            self.failed(name, reason)

    def produced(self, name: str, tokens: int) -> None:
        """It gave so many tokens to a request."""
        self._produced_s[name] = self._clock()
        self.output_tokens[name] += tokens

    def began(self, name: str) -> None:
        """It begins to answer a request."""
        self.answered[name] += 1
        self._suspicions.pop(name, None)
        if self._troubles.pop(name, None) is not None:
            self._trials.pop(name, None)
            self.turns.call()

    def observe(self) -> None:
        """Pass on to the router what instances say of themselves; call it about once a second."""
        for name, instance in self._instances.items():
            self._router.observe_kv_usage(name, instance.load.kv_usage)
            if instance.load.kv_room_tokens is not None:
                self._router.observe_kv_room(name, instance.load.kv_room_tokens)
        if self.open_instances():
            self.turns.call()

    def _opens_within_s(self, instance: Instance, *, most_s: float) -> float:
        state = instance.state
        if state.condition in _WAITED_FOR:
            return most_s
        if state.failures > 1:
            return 0.0
        if instance.ready_in_s is not None:
            return instance.ready_in_s + SOON_S if instance.ready_in_s <= most_s else 0.0
        most_s = most_s if state.condition is Condition.UNWELL else SOON_S
        return max(0.0, state.since_s + most_s - self._clock())

    def _closed_words(self, name: str) -> str:
        state = self._instances[name].state
        if state.condition is Condition.READY:
            return "left alone for a moment, as it failed"
        why = without_log(state.message)[:_MOST_OF_A_STATE]
        return f"{state.condition}: {why}" if why else state.condition

    def _full(self) -> set[str]:
        most = self._most_requests
        return {name for name in most if self._counts[name] >= most[name]}

    def _closed(self) -> set[str]:
        now_s = self._clock()
        return {
            name
            for name, instance in self._instances.items()
            if instance.state.condition is not Condition.READY or self._rests(name, now_s)
        }

    def _rests(self, name: str, now_s: float) -> bool:
        trouble = self._troubles.get(name)
        return trouble is not None and (now_s < trouble.until_s or name in self._trials)
