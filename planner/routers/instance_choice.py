"""Routers among whole-model instances, by name.

Simulator and front use the same. Routers that use only turns and counts are here; the paper's is
in `load_aware.py`.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, get_args

from planner.domain.errors import PlannerError
from planner.routers.base import InstanceRouter, RequestSize
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


class WeightedTurns(InstanceRouter):
    """Turns in proportion to weights, spread evenly (smooth weighted round robin).

    Masked instances lose their turns meanwhile, and make no burst of them afterwards.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Raises ValueError without instances, or for a weight that is not above 0."""
        super().__init__(weights)
        for name, weight in weights.items():
            if not 0 < weight < float("inf"):
                raise ValueError(f"the weight of {name!r} is {weight}; it must be above 0")
        self._weights = dict(weights)
        self._credit = dict.fromkeys(weights, 0.0)

    def _chosen(self, request: Hashable, size: RequestSize, among: Sequence[str]) -> str:
        for name in among:
            self._credit[name] += self._weights[name]
        chosen = max(among, key=lambda name: self._credit[name])
        self._credit[chosen] -= sum(self._weights[name] for name in among)
        return chosen


class FewestUnderWay(InstanceRouter):
    """Chooses the instance with the fewest requests in flight; among equals the first in order.

    `places` is how many of the instances are used at all, the first ones that are not masked.
    """

    def __init__(self, names: Collection[str], *, places: int) -> None:
        """Raises ValueError without instances."""
        super().__init__(names)
        self._places = places

    def _chosen(self, request: Hashable, size: RequestSize, among: Sequence[str]) -> str:
        return super()._chosen(request, size, among[: self._places])


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
