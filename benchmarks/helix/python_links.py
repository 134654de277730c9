"""Links of the engine in Python: lanes, pieces of prompts, and bandwidth that links share.

Every link has two lanes (one under FIFO). Of a shared bandwidth every link that is sending has the
same part, or what its own bandwidth lets it use of that, and the others more (processor sharing, as
of streams that compete for a network card); what a link cannot use because another shared bandwidth
holds it up is not given away. Paces change when a link begins to send or falls silent.
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from benchmarks.helix.python_state import (
    ARRIVAL,
    DECODES,
    LINK_DUE,
    NO_LANE,
    PROMPTS,
    Item,
    Link,
    Message,
    Messages,
    Node,
    Share,
)
from planner.simulator.engine import EngineSetup


class Foresee(Protocol):
    """Enters an event; see `PythonEngine`."""

    def __call__(
        self,
        time: float,
        kind: int,
        subject: int,
        version: int = 0,
        message: Message | None = None,
    ) -> None: ...


class PythonLinks:
    """What is on the links, and when it is through."""

    def __init__(
        self,
        setup: EngineSetup,
        nodes: Sequence[Node],
        *,
        clock: Callable[[], float],
        foresee: Foresee,
    ) -> None:
        self._setup, self._nodes = setup, nodes
        self._clock, self._foresee = clock, foresee
        self._shares = [Share(bandwidth) for bandwidth in setup.shared_bytes_per_s]
        self.all: list[Link] = []

    def add(
        self,
        *,
        source: int,
        target: int,
        bandwidth_bytes_per_s: float,
        latency_s: float,
        shares: Sequence[int],
    ) -> int:
        """The number of a new directed link."""
        link = Link(len(self.all), source, target, bandwidth_bytes_per_s, latency_s)
        link.reset(self._clock())
        for share in shares:
            link.shares.append(self._shares[share])
            self._shares[share].links.append(link)
        self.all.append(link)
        return link.number

    def lane(self, item: Item) -> int:
        """The lane of what an item sends; without lanes all goes by the first."""
        return PROMPTS if self._setup.decodes_first and item.tokens else DECODES

    def send(self, messages: Messages) -> None:
        for message in messages.in_order:
            self.enqueue(message)

    def enqueue(self, message: Message) -> None:
        link = self.all[message.link]
        link.account(self._clock())
        lane = self.lane(message.items[0])
        link.queues[lane].append(message)
        link.waiting += 1
        if link.active[DECODES] is None and link.active[PROMPTS] is None:
            self._begin(link)
        elif lane == DECODES and link.due_lane == PROMPTS:
            self._interrupt(link)
        link.waiting_peak = max(link.waiting_peak, link.waiting)

    def _begin(self, link: Link) -> None:
        """The idle link sends a message: of decodes first, else a prompt's rest or the next one."""
        lane = DECODES if link.queues[DECODES] else PROMPTS
        sends = bool(link.queues[lane]) or link.active[lane] is not None
        self._occupy(link, is_sending=sends)
        link.due_lane = lane if sends else NO_LANE
        if not sends:
            return
        if link.active[lane] is None:
            self._load(link, lane)
        link.since, link.sent, link.piece = self._clock(), 0.0, 0.0
        self._due_at(link, self._clock() + link.left[lane] / link.pace)

    def _load(self, link: Link, lane: int) -> None:
        message = link.queues[lane].popleft()
        link.waiting -= 1
        link.active[lane], link.left[lane] = message, message.size

    def _interrupt(self, link: Link) -> None:
        """A decode came while a prompt is under way: it goes at the end of the present piece."""
        if link.piece > 0 or self._setup.piece_bytes <= 0:
            return
        passed = link.sent + (self._clock() - link.since) * link.pace
        piece = self._setup.piece_bytes * math.floor(passed / self._setup.piece_bytes + 1.0)
        if piece < link.left[PROMPTS]:
            link.piece = piece
            self._due_at(link, link.since + (piece - link.sent) / link.pace)

    def _occupy(self, link: Link, *, is_sending: bool) -> None:
        """The link begins to send or falls silent: each that shares bandwidth with it gets another
        pace."""
        if link.is_sending == is_sending:
            return
        link.is_sending = is_sending
        for share in link.shares:
            share.divide()
        link.pace = link.fair_pace()
        for share in link.shares:
            for other in share.links:
                if other is not link and other.is_sending:
                    self._set_pace(other, other.fair_pace())

    def _set_pace(self, link: Link, pace: float) -> None:
        """Go on at another pace with what is under way."""
        if pace == link.pace:
            return
        link.sent += (self._clock() - link.since) * link.pace
        link.since, link.pace = self._clock(), pace
        size = link.piece or link.left[link.due_lane]
        self._due_at(link, self._clock() + max(0.0, size - link.sent) / pace)

    def _due_at(self, link: Link, time: float) -> None:
        link.version += 1
        self._foresee(time, LINK_DUE, link.number, link.version)

    def due(self, number: int, version: int) -> None:
        """A message or piece is through, unless the link has changed its mind since."""
        link = self.all[number]
        if version != link.version:
            return
        link.account(self._clock())
        lane = link.due_lane
        if link.piece > 0:
            link.left[lane] -= link.piece
            self._begin(link)
            return
        message = link.active[lane]
        link.active[lane] = None
        if message is not None:
            link.bytes += message.size
            self._foresee(self._clock() + link.latency, ARRIVAL, 0, 0, message)
        self._begin(link)
