"""Routers by name."""

import random
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

from planner.domain.errors import PlannerError
from planner.domain.placement import Placement
from planner.routers.base import LoadView, Router
from planner.routers.hops import Hops
from planner.routers.iwrr import InterleavedWeightedRoundRobin, with_flow
from planner.routers.kv_estimator import KvEstimator
from planner.routers.published import PublishedRouter, with_enough_flow
from planner.routers.random_choice import RandomChoice
from planner.routers.round_robin import plain, weighted
from planner.routers.shortest_queue import ShortestQueue
from planner.routers.swarm import SwarmTurns
from planner.routers.walk import TurnsMaker, WalkRouter

RouterName: TypeAlias = Literal[
    "iwrr",
    "published",
    "swarm",
    "random",
    "shortest_queue",
    "round_robin",
    "weighted_round_robin",
]
ROUTER_NAMES: tuple[RouterName, ...] = get_args(RouterName)


# How each router's vertices take turns. `published` decides otherwise: it draws a whole path.
TURNS: dict[str, Callable[[LoadView, random.Random], TurnsMaker]] = {
    "iwrr": lambda load, rng: InterleavedWeightedRoundRobin,
    "swarm": lambda load, rng: lambda targets: SwarmTurns(targets, load),
    "random": lambda load, rng: lambda targets: RandomChoice(rng),
    "shortest_queue": lambda load, rng: lambda targets: ShortestQueue(targets, load),
    "round_robin": lambda load, rng: plain,
    "weighted_round_robin": lambda load, rng: weighted,
}


class UnknownRouter(PlannerError, ValueError):
    """A router's name that is none of ROUTER_NAMES."""


def make_router(
    name: str,
    *,
    routing_weights: Mapping[str, Mapping[str, float]],
    placement: Placement,
    num_layers: int,
    partial_inference: bool,
    kv: KvEstimator,
    load: LoadView,
    rng: random.Random,
) -> Router:
    """The router called `name`, over the hops of the weights and under the same KV limit as any.

    `iwrr`, `published` and `weighted_round_robin` follow the weights; the others take every hop
    that is named, of weight 0 too. `load` informs `swarm` and `shortest_queue`, `rng` is drawn from
    by `random`. Raises UnknownRouter and InvalidPlacement.
    """
    if name not in ROUTER_NAMES:
        raise UnknownRouter(f"router {name!r} is unknown; use one of: {', '.join(ROUTER_NAMES)}")
    if name in ("iwrr", "weighted_round_robin"):
        routing_weights = with_flow(routing_weights)
    elif name == "published":
        routing_weights = with_enough_flow(routing_weights)
    hops = Hops(
        routing_weights=routing_weights,
        placement=placement,
        num_layers=num_layers,
        partial_inference=partial_inference,
        kv=kv,
    )
    return (
        PublishedRouter(hops) if name == "published" else WalkRouter(hops, TURNS[name](load, rng))
    )
