"""What `python_engine` keeps of requests, nodes and links."""

import math
from collections import deque

from planner.simulator.engine import AVERAGE_WEIGHT, NodeSetup, StageVisit, StepTimes

DECODES, PROMPTS = 0, 1  # lanes
NO_LANE = -1
STEP_DONE, LINK_DUE, ARRIVAL, REFUSED = range(4)  # events


class Item:
    """A prompt or chunk of `tokens`, or a decode (0 tokens), on the way to or at a stage.

    `opens_block`: a decode whose row is the first of a block of pages at every stage.
    """

    __slots__ = ("attempt", "ends_prompt", "opens_block", "order", "request", "stage", "tokens")

    def __init__(
        self, request: "Request", tokens: int, *, ends_prompt: bool, opens_block: bool
    ) -> None:
        self.request, self.attempt = request, request.attempt
        self.stage, self.tokens = 0, tokens
        self.ends_prompt, self.opens_block = ends_prompt, opens_block
        self.order = 0  # of arrival in the queue that it waits in


class Queue:
    """What waits for a segment; apart, so that a full step need not look through all."""

    def __init__(self) -> None:
        self.prompts: deque[Item] = deque()
        self.decodes: deque[Item] = deque()


class Message:
    """Items that cross a link together; `size` in bytes."""

    __slots__ = ("items", "link", "size")

    def __init__(self, link: int, items: list[Item], size: float) -> None:
        self.link, self.items, self.size = link, items, size


class Messages:
    """The messages of one step: of every item, or of every link and lane."""

    def __init__(self, grouped: bool) -> None:
        self.in_order: list[Message] = []
        self._open: dict[tuple[int, int], Message] | None = {} if grouped else None

    def add(self, item: Item, link: int, lane: int, size: float) -> None:
        message = None if self._open is None else self._open.get((link, lane))
        if message is not None:
            message.items.append(item)
            message.size += size
            return
        message = Message(link, [item], size)
        self.in_order.append(message)
        if self._open is not None:
            self._open[link, lane] = message


class Stay:
    """A request at one of its stages: `came` counts the requests that came to the node."""

    __slots__ = ("blocks", "came", "left_s", "waited_s")

    def __init__(self) -> None:
        self.left_s: float | None = None  # when it left the stage last, after the prompt
        self.came = self.blocks = 0
        self.waited_s = 0.0  # for steps of the node, where that is measured


class Request:
    """What is known of a request; `attempt` counts how often pages were lost under its number."""

    __slots__ = (
        "attempt",
        "first_token_s",
        "grow_at",
        "is_lost",
        "last_token_s",
        "link_back",
        "link_home",
        "number",
        "output_tokens",
        "prefill_tokens",
        "produced",
        "prompt_tokens",
        "sampled",
        "stages",
        "stays",
    )

    def __init__(self, number: int, prompt_tokens: int, output_tokens: int) -> None:
        self.number = number
        self.prompt_tokens, self.output_tokens = prompt_tokens, output_tokens
        self.produced = 0  # tokens known to the coordinator
        self.attempt = 0
        self.first_token_s = self.last_token_s = 0.0

    def begin(
        self, grow_at: int, stages: tuple[StageVisit, ...], link_home: int, link_back: int
    ) -> None:
        """Take this way, for the first time or again."""
        self.grow_at, self.stages = grow_at, stages
        self.link_home, self.link_back = link_home, link_back
        self.prefill_tokens = self.prompt_tokens + self.produced
        self.sampled = self.produced  # by the last stage
        self.stays = [Stay() for _ in stages]
        self.is_lost = False  # by a node; the coordinator does not know yet

    def opens_block(self, page_tokens: int) -> bool:
        """Whether the token sampled last begins a block of pages."""
        return (self.prompt_tokens + self.sampled - 1) % page_tokens == 0


class Node:
    def __init__(self, setup: NodeSetup) -> None:
        self.setup = setup
        self.queues = [Queue() for _ in setup.segment_layers]
        self.batch: list[Item] = []
        self.position = self.waiting = self.resident = self.copied_tokens = 0
        self.held = self.arrivals = 0
        self.growth = 0  # pages for a block more of everybody who holds some
        self.has_decodes = False
        self.step_s: float | None = None  # moving averages, of steps with decodes
        self.away_s: float | None = None  # and of what passes until a request is back
        self.busy_since = self.busy_until = self.began_s = 0.0

    def reset(self, now: float) -> None:
        self.busy_s = self.resident_integral = self.held_integral = self.waiting_integral = 0.0
        self.steps = self.decode_steps = self.decodes = self.decodes_squared = 0
        self.decodes_resident = self.prompt_tokens = 0
        self.held_peak = self.held
        self.changed_s = self.busy_since = now

    def account(self, now: float) -> None:
        passed = now - self.changed_s
        self.resident_integral += self.resident * passed
        self.held_integral += self.held * passed
        self.waiting_integral += self.waiting * passed
        self.changed_s = now

    def account_busy(self, now: float) -> None:
        if self.batch:
            self.busy_s += now - self.busy_since
            self.busy_since = now


class Link:
    def __init__(
        self, number: int, source: int, target: int, bandwidth: float, latency: float
    ) -> None:
        self.number, self.source, self.target = number, source, target
        self.bandwidth, self.latency = bandwidth, latency
        self.queues: tuple[deque[Message], deque[Message]] = (deque(), deque())
        self.active: list[Message | None] = [None, None]
        self.left = [0.0, 0.0]
        self.since = self.piece = self.sent = 0.0  # `sent` of the piece or message before `since`
        self.shares: list[Share] = []
        self.is_sending = False
        self.pace = bandwidth
        self.due_lane = NO_LANE
        self.version = self.waiting = 0

    def fair_pace(self) -> float:
        """Bytes/s that the link may use while those that are sending now do."""
        pace = self.bandwidth
        for share in self.shares:
            pace = min(pace, share.level)
        return pace

    def reset(self, now: float) -> None:
        self.bytes = self.busy_s = self.waiting_integral = 0.0
        self.waiting_peak = self.waiting
        self.changed_s = now

    def account(self, now: float) -> None:
        passed = now - self.changed_s
        if self.active[DECODES] is not None or self.active[PROMPTS] is not None:
            self.busy_s += passed
        self.waiting_integral += self.waiting * passed
        self.changed_s = now


class Share:
    """A bandwidth in bytes/s that several links have together; none may use more than `level`."""

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth, self.level = bandwidth, math.inf
        self.links: list[Link] = []

    def divide(self) -> None:
        """The same for every link that is sending; what slower ones leave goes to the others."""
        level = 0.0
        while True:
            left, takers = self.bandwidth, 0
            for link in self.links:
                if link.is_sending and link.bandwidth <= level:
                    left -= link.bandwidth
                elif link.is_sending:
                    takers += 1
            raised = left / takers if takers else math.inf
            if raised <= level or not takers:
                self.level = max(raised, level)
                return
            level = raised


def averaged(average: float | None, value: float) -> float:
    return value if average is None else average + AVERAGE_WEIGHT * (value - average)


def seconds_of(times: StepTimes, amount: int) -> float:
    last = len(times.seconds) - 1
    if amount <= last:
        return float(times.seconds[amount])
    return float(times.seconds[last]) + (amount - last) * times.slope_s
