"""An engine whose prompts choose each hop when they are sent, as the artifact's baselines do.

The artifact gives a baseline's request no way in advance. Whenever something is to be sent at a
vertex, or a link of it has sent its message, it goes through what waits there, oldest first: a
decode takes the link of its request's way, a prompt the link that its router names, and a link
takes one message at a time. Prompts are whole, and a link that no request was let in over is not
known yet.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarks.helix.python_engine import PythonEngine
from benchmarks.helix.python_links import Foresee, PythonLinks
from benchmarks.helix.python_pages import is_gone
from benchmarks.helix.python_state import (
    DECODES,
    Item,
    Link,
    Message,
    Messages,
    Node,
    Stay,
)
from planner.simulator.engine import EngineSetup, StageVisit


class NextHop(Protocol):
    """Where a prompt goes from a vertex."""

    def choose(self, links: Sequence[Link], idle: Sequence[Link]) -> Link | None:
        """One of the vertex's `links`; None to ask again when something changes.

        The prompt is sent at once if that is one of the `idle` links, and waits for it otherwise.
        """


class HopByHopLinks(PythonLinks):
    """Links under one queue of prompts for each vertex, and one of what is bound for each link."""

    def __init__(
        self,
        setup: EngineSetup,
        nodes: Sequence[Node],
        *,
        clock: Callable[[], float],
        foresee: Foresee,
        next_hop: NextHop,
    ) -> None:
        super().__init__(setup, nodes, clock=clock, foresee=foresee)
        self._next_hop = next_hop
        self._visits: dict[int, StageVisit] = {}  # by link
        self._hops: defaultdict[int, list[Link]] = defaultdict(list)  # to nodes, by source
        self._all_of: defaultdict[int, list[Link]] = defaultdict(list)  # home too, by source
        self._onward: dict[int, tuple[StageVisit, ...]] = {}  # some way home, by node
        self._free: defaultdict[int, list[tuple[int, Message]]] = defaultdict(list)
        self._bound: defaultdict[int, deque[tuple[int, Message]]] = defaultdict(deque)
        self._order = 0

    def learn(self, stages: Sequence[StageVisit]) -> None:
        """The hops of a way, which others may take from now on."""
        for number, visit in enumerate(stages):
            self._onward[visit.node] = tuple(stages[number + 1 :])
            if visit.link not in self._visits:
                self._visits[visit.link] = visit
                link = self.all[visit.link]
                self._hops[link.source].append(link)

    def add(
        self,
        *,
        source: int,
        target: int,
        bandwidth_bytes_per_s: float,
        latency_s: float,
        shares: Sequence[int],
    ) -> int:
        number = super().add(
            source=source,
            target=target,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            latency_s=latency_s,
            shares=shares,
        )
        self._all_of[source].append(self.all[number])
        return number

    def enqueue(self, message: Message) -> None:
        self._wait(message)
        self._start(self.all[message.link].source)

    def send(self, messages: Messages) -> None:
        for message in messages.in_order:
            self._wait(message)
        for source in dict.fromkeys(self.all[each.link].source for each in messages.in_order):
            self._start(source)

    def due(self, number: int, version: int) -> None:
        super().due(number, version)
        self._start(self.all[number].source)

    def _wait(self, message: Message) -> None:
        self._order += 1
        item = message.items[0]
        if item.tokens and not is_gone(item):
            self._free[self.all[message.link].source].append((self._order, message))
        else:
            self._bound[message.link].append((self._order, message))

    def _start(self, source: int) -> None:
        """Give every idle link of the vertex the oldest message that may take it."""
        links = self._hops[source]
        idle = [link for link in self._all_of[source] if link.active[DECODES] is None]
        waiting, self._free[source] = self._free[source], []
        for order, message in waiting:
            for link in tuple(idle):
                if self._bound[link.number] and self._bound[link.number][0][0] < order:
                    self._send_bound(link, idle)
            chosen = self._next_hop.choose(links, [link for link in links if link in idle])
            if chosen is None:
                self._free[source].append((order, message))
                continue
            self._redirect(message.items[0], chosen)
            message.link = chosen.number
            self._bound[chosen.number].append((order, message))
            if chosen in idle:
                self._send_bound(chosen, idle)
        for link in tuple(idle):
            if self._bound[link.number]:
                self._send_bound(link, idle)

    def _send_bound(self, link: Link, idle: list[Link]) -> None:
        idle.remove(link)
        super().enqueue(self._bound[link.number].popleft()[1])

    def _redirect(self, item: Item, link: Link) -> None:
        """Send the prompt's request by this link, and from there some way home."""
        request, kept = item.request, item.stage
        if request.stages[kept].link == link.number:
            return
        visit = self._visits[link.number]
        onward = (visit, *self._onward[visit.node])
        for old in request.stages[kept:]:
            self._count(old.node, -1)
        for new in onward:
            self._count(new.node, 1)
        request.stages = (*request.stages[:kept], *onward)
        request.stays = [*request.stays[:kept], *(Stay() for _ in onward)]

    def _count(self, number: int, change: int) -> None:
        node = self._nodes[number]
        node.account(self._clock())
        node.resident += change


class HopByHop(PythonEngine):
    """The engine over such links. All ways end at one node, as tokens go home by one link."""

    def __init__(self, setup: EngineSetup, next_hop: NextHop) -> None:
        super().__init__(setup)
        self._hop_links = HopByHopLinks(
            setup,
            self._nodes,
            clock=lambda: self.now,
            foresee=self._foresee,
            next_hop=next_hop,
        )
        self._links = self._hop_links
        self._homes: set[int] = set()

    def begin(
        self,
        number: int,
        *,
        grow_at: int,
        stages: Sequence[StageVisit],
        link_home: int,
        link_back: int,
    ) -> None:
        self._homes.add(link_home)
        if len(self._homes) > 1:
            raise ValueError(
                f"tokens come home by {len(self._homes)} links; hop by hop only a placement can be "
                "simulated whose last layers are on one node"
            )
        self._hop_links.learn(stages)
        super().begin(
            number, grow_at=grow_at, stages=stages, link_home=link_home, link_back=link_back
        )
