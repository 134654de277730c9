"""The baselines' routers as the artifact runs them, for figure 10 as published.

They differ from the product's. Shortest queue looks only at what waits for a step at a node, which
is mostly nothing, and draws among equals; the product's then goes by requests in flight. Swarm adds
the smoothed time of the last hop to a neighbour's place in line whenever it is taken; the product's
goes by tokens that passed lately. The artifact decides at every hop when a link is free, here all
hops are decided when a request is let in. Queues are the engine's; the product's routers know only
what a coordinator does.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import Placement
from planner.routers.base import LoadView, Router
from planner.routers.hops import Hops
from planner.routers.kv_estimator import KvEstimator
from planner.routers.walk import Turns, WalkRouter
from planner.simulator.compiled.compiled_engine import new_engine
from planner.simulator.engine import Engine, EngineSetup
from planner.simulator.python_engine import PythonEngine
from planner.simulator.python_state import Item, Message, Node

_FIRST_HOP_S = 0.05
_LATEST_SHARE = 0.8  # of the last hop's time in the smoothed one


class ShortestWait:
    """Where fewest items wait for a step; one of them by chance where that is equal."""

    def __init__(self, waiting_at: Callable[[str], int], rng: random.Random) -> None:
        self._waiting_at, self._rng = waiting_at, rng

    def take(self, open_candidates: Sequence[str]) -> str:
        """The sink, or one of the candidates with least to do."""
        waiting = {name: self._waiting(name) for name in open_candidates}
        least = min(waiting.values())
        return self._rng.choice([name for name, count in waiting.items() if count == least])

    def take_over(self, before: Turns) -> None:
        """Queues are seen afresh at every turn."""

    def _waiting(self, name: str) -> int:
        return 0 if name == SINK else self._waiting_at(name)


class HopTimes(PythonEngine):
    """An engine that knows how long the last hops took, from the link's start to the step's end.

    The wait before the link is not part of it: congestion there is what Swarm does not see.
    """

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._sent_s: dict[Item, float] = {}
        self._smoothed_s: dict[tuple[int, int], float] = {}

    def hop_s(self, source: int, target: int) -> float:
        """Smoothed seconds of hops between two vertices."""
        return self._smoothed_s.get((source, target), _FIRST_HOP_S)

    def _receive(self, message: Message) -> None:
        link = self._links.all[message.link]
        for item in message.items:
            self._sent_s[item] = self.now - link.latency - message.size / link.bandwidth
        super()._receive(message)

    def _hand_on(self, node: Node, batch: list[Item]) -> None:
        for item in batch:
            link = self._links.all[item.request.stages[item.stage].link]
            hop = (link.source, link.target)
            taken_s = self.now - self._sent_s.pop(item)
            before_s = self.hop_s(*hop)
            self._smoothed_s[hop] = _LATEST_SHARE * taken_s + (1 - _LATEST_SHARE) * before_s
        super()._hand_on(node, batch)


class ByHopTime:
    """Neighbours in a line; whoever is taken goes back by the smoothed time of hops to it."""

    def __init__(
        self, source: int, number_of: Mapping[str, int], candidates: Sequence[str], times: HopTimes
    ) -> None:
        self._source, self._number_of, self._times = source, number_of, times
        self._place = dict.fromkeys(candidates, _FIRST_HOP_S)

    def take(self, open_candidates: Sequence[str]) -> str:
        """The first in the line."""
        taken = min(open_candidates, key=lambda name: (self._place[name], name))
        if taken != SINK:
            self._place[taken] += self._times.hop_s(self._source, self._number_of[taken])
        return taken

    def take_over(self, before: Turns) -> None:
        """No plan changes during a figure."""


ArtifactRouter: TypeAlias = Literal["shortest_queue", "swarm"]


class ArtifactRouting:
    """Makes the engine and the router of one simulation; `simulate` takes both makers."""

    def __init__(self, name: ArtifactRouter) -> None:
        self._name = name
        self._engine: Engine | None = None

    def engine(self, setup: EngineSetup) -> Engine:
        """An engine that tells hop times where the router asks for them."""
        self._engine = HopTimes(setup) if self._name == "swarm" else new_engine(setup)
        return self._engine

    def router(
        self,
        _name: str,
        *,
        routing_weights: Mapping[str, Mapping[str, float]],
        placement: Placement,
        num_layers: int,
        partial_inference: bool,
        kv: KvEstimator,
        load: LoadView,
        rng: random.Random,
    ) -> Router:
        """The router over every hop that is named; called after `engine`, whose queues it sees."""
        engine = self._engine
        if engine is None:
            raise ValueError("the router asks the engine that `engine` makes; call that first")
        hops = Hops(
            routing_weights=routing_weights,
            placement=placement,
            num_layers=num_layers,
            partial_inference=partial_inference,
            kv=kv,
        )
        number_of = {name: number for number, name in enumerate(sorted(placement.layers))}
        number_of[SOURCE] = len(number_of)
        router = WalkRouter(
            hops, lambda _: ShortestWait(lambda name: engine.waiting(number_of[name]), rng)
        )
        if isinstance(engine, HopTimes):
            router.turns = {
                source: ByHopTime(number_of[source], number_of, tuple(targets), engine)
                for source, targets in routing_weights.items()
            }
        return router
