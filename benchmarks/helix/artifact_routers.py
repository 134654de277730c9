"""The baselines' routers as the artifact runs them, for figure 10 as published.

They differ from the product's: a prompt's way is decided hop by hop, when something can be sent
(`hop_by_hop.py`). Random takes any link that is idle then, and so goes around those that are
sending. Shortest queue takes an idle link to where fewest items wait for a step, one of them by
chance where that is equal, and waits while all links to there are sending. Swarm takes a place in
line at once, idle or not: the one that is taken goes back by the smoothed time of hops there.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from benchmarks.helix.hop_by_hop import HopByHop, NextHop
from benchmarks.helix.python_state import Item, Link, Message, Node
from planner.routers.base import Router
from planner.routers.choice import make_router
from planner.simulator.engine import EngineSetup

_FIRST_HOP_S = 0.05
_LATEST_SHARE = 0.8  # of the last hop's time in the smoothed one


class AnyIdle:
    """One of the idle links by chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def choose(self, links: Sequence[Link], idle: Sequence[Link]) -> Link | None:
        """None while all are sending."""
        return self._rng.choice(idle) if idle else None


class ShortestWait:
    """An idle link to where fewest items wait for a step; by chance where that is equal."""

    def __init__(self, waiting_at: Callable[[int], int], rng: random.Random) -> None:
        self._waiting_at, self._rng = waiting_at, rng

    def choose(self, links: Sequence[Link], idle: Sequence[Link]) -> Link | None:
        """None while all links to where fewest wait are sending, others idle or not."""
        if not idle:
            return None
        least = min(self._waiting_at(link.target) for link in links)
        shortest = [link for link in idle if self._waiting_at(link.target) == least]
        return self._rng.choice(shortest) if shortest else None


class ByHopTime:
    """Links in a line for each vertex; one that is taken goes back by the smoothed time of hops.

    A hop lasts from the link's start to the step's end. The wait before the link is not part of
    it: congestion there is what Swarm does not see.
    """

    def __init__(self) -> None:
        self._place: dict[int, float] = {}
        self._smoothed_s: dict[int, float] = {}

    def choose(self, links: Sequence[Link], idle: Sequence[Link]) -> Link | None:
        """The first in the line."""
        taken = min(links, key=lambda link: (self._place_of(link.number), link.number))
        self._place[taken.number] = self._place_of(taken.number) + self._hop_s(taken.number)
        return taken

    def took(self, link: int, seconds: float) -> None:
        """A hop by this link has ended."""
        before_s = self._hop_s(link)
        self._smoothed_s[link] = _LATEST_SHARE * seconds + (1 - _LATEST_SHARE) * before_s

    def _place_of(self, link: int) -> float:
        return self._place.get(link, _FIRST_HOP_S)

    def _hop_s(self, link: int) -> float:
        return self._smoothed_s.get(link, _FIRST_HOP_S)


class HopTimes(HopByHop):
    """An engine that tells `times` how long every hop took."""

    def __init__(self, setup: EngineSetup, times: ByHopTime) -> None:
        super().__init__(setup, times)
        self._times = times
        self._sent_s: dict[Item, float] = {}

    def _receive(self, message: Message) -> None:
        link = self._links.all[message.link]
        for item in message.items:
            self._sent_s[item] = self.now - link.latency - message.size / link.bandwidth
        super()._receive(message)

    def _hand_on(self, node: Node, batch: list[Item]) -> None:
        for item in batch:
            link = item.request.stages[item.stage].link
            self._times.took(link, self.now - self._sent_s.pop(item))
        super()._hand_on(node, batch)


ArtifactRouter: TypeAlias = Literal["random", "shortest_queue", "swarm"]


class ArtifactRouting:
    """Makes the engine and the router of one simulation; `simulate` takes both makers."""

    def __init__(self, name: ArtifactRouter, *, seed: int) -> None:
        self._name = name
        self._rng = random.Random(seed)

    def engine(self, setup: EngineSetup) -> HopByHop:
        """An engine in which prompts go hop by hop."""
        if self._name == "swarm":
            return HopTimes(setup, ByHopTime())
        next_hop: NextHop = AnyIdle(self._rng)
        if self._name == "random":
            return HopByHop(setup, next_hop)
        engine: HopByHop
        engine = HopByHop(setup, ShortestWait(lambda number: engine.waiting(number), self._rng))
        return engine

    def router(self, _name: str, **arguments: Any) -> Router:
        """What lets requests in: by chance over every hop that is named, decided again at each."""
        return make_router("random", **arguments)
