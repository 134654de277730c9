"""Which whole-model instance answers a request: every way by its name.

Simulator and front use the same. Those that look at nothing but turns and counts stand here;
the paper's own is in `load_aware.py`.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias, get_args

from planner.domain.errors import PlannerError
from planner.routers.base import RequestSize
from planner.routers.load_aware import DEFAULT_THETA, InstanceSpeed, LoadAwareInstances

InstanceRouterName: TypeAlias = Literal[
    "load_aware",
    "memory_based",
    "round_robin",
    "weighted_round_robin",
    "shortest_queue",
    "single",
]
INSTANCE_ROUTER_NAMES: tuple[InstanceRouterName, ...] = get_args(InstanceRouterName)


class UnknownInstanceRouter(PlannerError, ValueError):
    """A name that is none of INSTANCE_ROUTER_NAMES."""


class InstanceRouter(Protocol):
    """Chooses, and is told when what it chose for ends."""

    def choose(
        self, request: Hashable, size: RequestSize, *, masked: Collection[str] = ()
    ) -> str | None:
        """Where the request goes, which is then under way there; None if all are `masked`.

        Raises ValueError for a request that is under way.
        """

    def end(self, request: Hashable) -> None:
        """It is answered, or gave up. Raises KeyError if unknown."""

    def observe_kv_usage(self, instance: str, ratio: float | None) -> None:
        """What the instance's own metrics say, 0 to 1; None: they say nothing any more."""

    def observe_kv_room(self, instance: str, tokens: int) -> None:
        """The instance has room for that many tokens, whatever was assumed."""


class WeightedTurns:
    """Turns in proportion to weights, spread evenly (smooth weighted round robin).

    Who is masked loses its turns meanwhile, and makes no burst of them afterwards.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Raises ValueError without instances, or for a weight that is not above 0."""
        _refuse_none(weights)
        for name, weight in weights.items():
            if not 0 < weight < float("inf"):
                raise ValueError(f"the weight of {name!r} is {weight}; it must be above 0")
        self._weights = dict(weights)
        self._credit = dict.fromkeys(weights, 0.0)
        self._under_way: set[Hashable] = set()

    def choose(
        self, request: Hashable, size: RequestSize, *, masked: Collection[str] = ()
    ) -> str | None:
        _refuse_twice(request, self._under_way)
        open_ones = [name for name in self._weights if name not in masked]
        if not open_ones:
            return None
        for name in open_ones:
            self._credit[name] += self._weights[name]
        chosen = max(open_ones, key=lambda name: self._credit[name])
        self._credit[chosen] -= sum(self._weights[name] for name in open_ones)
        self._under_way.add(request)
        return chosen

    def end(self, request: Hashable) -> None:
        self._under_way.remove(request)

    def observe_kv_usage(self, instance: str, ratio: float | None) -> None:
        """Turns do not depend on it."""

    def observe_kv_room(self, instance: str, tokens: int) -> None:
        """Turns do not depend on it."""


class FewestUnderWay:
    """Where the fewest requests are under way; of several the first in order.

    `places` is how many of the instances are used at all, the first ones that are not masked.
    """

    def __init__(self, names: Collection[str], *, places: int) -> None:
        """Raises ValueError without instances."""
        _refuse_none(names)
        self._counts = dict.fromkeys(names, 0)
        self._places = places
        self._under_way: dict[Hashable, str] = {}

    def choose(
        self, request: Hashable, size: RequestSize, *, masked: Collection[str] = ()
    ) -> str | None:
        _refuse_twice(request, self._under_way)
        used = [name for name in self._counts if name not in masked][: self._places]
        if not used:
            return None
        chosen = min(used, key=lambda name: self._counts[name])
        self._counts[chosen] += 1
        self._under_way[request] = chosen
        return chosen

    def end(self, request: Hashable) -> None:
        self._counts[self._under_way.pop(request)] -= 1

    def observe_kv_usage(self, instance: str, ratio: float | None) -> None:
        """Counts do not depend on it."""

    def observe_kv_room(self, instance: str, tokens: int) -> None:
        """Counts do not depend on it."""


def make_instance_router(
    name: str,
    *,
    speeds: Mapping[str, InstanceSpeed],
    weights: Mapping[str, float],
    theta: float = DEFAULT_THETA,
) -> InstanceRouter:
    """The router called `name` over these instances, in their order.

    `weights` are those of `weighted_round_robin`; `single` takes the first that is open. Raises
    UnknownInstanceRouter, and ValueError for what a router cannot be made of.
    """
    if name == "load_aware":
        return LoadAwareInstances(speeds, theta=theta)
    if name == "memory_based":
        by_room = {each: replace(speed, latency=None) for each, speed in speeds.items()}
        return LoadAwareInstances(by_room, theta=theta)
    if name == "round_robin":
        return WeightedTurns(dict.fromkeys(speeds, 1.0))
    if name == "weighted_round_robin":
        return WeightedTurns({each: weights[each] for each in speeds})
    if name == "shortest_queue":
        return FewestUnderWay(tuple(speeds), places=len(speeds))
    if name == "single":
        return FewestUnderWay(tuple(speeds), places=1)
    raise UnknownInstanceRouter(
        f"router {name!r} is unknown; use one of: {', '.join(INSTANCE_ROUTER_NAMES)}"
    )


def _refuse_none(names: Collection[str]) -> None:
    if not names:
        raise ValueError("no instance to choose from")


def _refuse_twice(request: Hashable, under_way: Collection[Hashable]) -> None:
    if request in under_way:
        raise ValueError(f"request {request!r} is under way; end it before it is routed again")
