"""The simulator's engine in Python: what `planner/loops/simulator/` does, to the last bit.

`hop_by_hop.py` changes it; tests compare it with the engine in C.

An *item* is what a step works on: a prompt, a chunk of one, or one decode of a request. When a step
of `python_steps` is done, items that have passed a node's last segment go, as messages, by
`python_links` to the next stage. What requests hold of KV room is in `python_pages`. Events at the
same time happen in the order in which they were foreseen.
"""

import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np

from benchmarks.helix.python_links import PythonLinks
from benchmarks.helix.python_pages import PythonPages, give_back, is_gone
from benchmarks.helix.python_state import (
    DECODES,
    LINK_DUE,
    REFUSED,
    STEP_DONE,
    Item,
    Message,
    Messages,
    Node,
    Request,
)
from benchmarks.helix.python_steps import PythonSteps
from planner.simulator.engine import (
    NUM_BUCKETS,
    SAME_NODE,
    VIA_COORDINATOR,
    EngineSetup,
    EngineStatistics,
    LinkStatistics,
    NodeStatistics,
    Occurrence,
    OccurrenceKind,
    StageVisit,
    bucket_of,
)


class PythonEngine:
    """See `planner.simulator.engine.Engine`."""

    def __init__(self, setup: EngineSetup) -> None:
        self._setup = setup
        self.now = 0.0
        self._order = 0
        self._events: list[tuple[float, int, int, int, int, Message | None]] = []
        self._events_done = 0
        self._nodes = [Node(node) for node in setup.nodes]
        self._coordinator = len(setup.nodes)
        self._links = PythonLinks(setup, self._nodes, clock=lambda: self.now, foresee=self._foresee)
        self._requests: list[Request] = []
        self._free: list[int] = []
        self._pages = PythonPages(
            page_tokens=setup.page_tokens,
            requests=lambda: self._requests,
            on_lost=lambda node, request: self._foresee(
                self.now + setup.nodes[node].refusal_s, REFUSED, request.number, request.attempt
            ),
        )
        self._steps = PythonSteps(
            setup, self._nodes, pages=self._pages, clock=lambda: self.now, foresee=self._foresee
        )
        self._occurred: deque[Occurrence] = deque()
        self._running = 0
        self.reset_statistics()

    def add_link(
        self,
        *,
        source: int,
        target: int,
        bandwidth_bytes_per_s: float,
        latency_s: float,
        shares: Sequence[int],
    ) -> int:
        return self._links.add(
            source=source,
            target=target,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            latency_s=latency_s,
            shares=shares,
        )

    def admit(self, *, prompt_tokens: int, output_tokens: int) -> int:
        number = self._free.pop() if self._free else len(self._requests)
        request = Request(number, prompt_tokens, output_tokens)
        if number < len(self._requests):  # a late refusal may be on its way to who had the number
            request.attempt = self._requests[number].attempt
        self._requests[number : number + 1] = [request]
        return number

    def begin(
        self,
        number: int,
        *,
        grow_at: int,
        stages: Sequence[StageVisit],
        link_home: int,
        link_back: int,
    ) -> None:
        request = self._requests[number]
        request.begin(grow_at, tuple(stages), link_home, link_back)
        self._account_running()
        self._running += 1
        for stage in stages:
            node = self._nodes[stage.node]
            node.account(self.now)
            node.resident += 1
        left = request.prefill_tokens
        chunk = self._setup.chunk_tokens or left
        while left > 0:
            tokens = min(chunk, left)
            left -= tokens
            item = Item(request, tokens, ends_prompt=left == 0, opens_block=False)
            # Chunks are messages of their own even where a step's items are not.
            self._links.enqueue(Message(stages[0].link, [item], tokens * self._setup.token_bytes))

    def give_up(self, request: int) -> None:
        self._free.append(request)

    def set_grow_at(self, request: int, *, tokens: int) -> None:
        self._requests[request].grow_at = tokens

    def advance(self, until_s: float) -> Occurrence | None:
        while not self._occurred:
            if not self._events or self._events[0][0] > until_s:
                self.now = until_s
                return None
            self.now, _, kind, subject, version, message = heapq.heappop(self._events)
            self._events_done += 1
            if kind == STEP_DONE:
                self._step_done(subject)
            elif kind == LINK_DUE:
                self._links.due(subject, version)
            elif kind == REFUSED:
                self._refused(self._requests[subject], version)
            elif message is not None:
                self._receive(message)
        occurrence = self._occurred.popleft()
        if occurrence.kind == OccurrenceKind.FINISHED:
            self._free.append(occurrence.request)
        return occurrence

    def stage_waits_s(self, request: int, *, num_stages: int) -> list[float]:
        return [stay.waited_s for stay in self._requests[request].stays[:num_stages]]

    def waiting(self, node: int) -> int:
        return self._nodes[node].waiting

    def reset_statistics(self) -> None:
        self._since = self._running_changed = self.now
        self._output_tokens = self._first_tokens = self._prompt_tokens = 0
        self._finished = self._preempted = 0
        self._running_integral = 0.0
        self._gaps = [0] * NUM_BUCKETS
        for node in self._nodes:
            node.reset(self.now)
        for link in self._links.all:
            link.reset(self.now)

    def statistics(self) -> EngineStatistics:
        self._account_running()
        for node in self._nodes:
            node.account(self.now)
            node.account_busy(self.now)
        nodes, links = self._nodes, self._links.all
        page_tokens = self._setup.page_tokens
        for link in links:
            link.account(self.now)
        return EngineStatistics(
            seconds=self.now - self._since,
            events=self._events_done,
            output_tokens=self._output_tokens,
            first_tokens=self._first_tokens,
            prompt_tokens=self._prompt_tokens,
            finished=self._finished,
            preempted=self._preempted,
            running_integral=self._running_integral,
            gaps=np.array(self._gaps, dtype=np.int64),
            nodes=NodeStatistics(
                busy_s=np.array([node.busy_s for node in nodes]),
                steps=np.array([node.steps for node in nodes], dtype=np.int64),
                decode_steps=np.array([node.decode_steps for node in nodes], dtype=np.int64),
                decodes=np.array([node.decodes for node in nodes], dtype=np.int64),
                decodes_squared=np.array([node.decodes_squared for node in nodes], dtype=np.int64),
                decodes_resident=np.array(
                    [node.decodes_resident for node in nodes], dtype=np.int64
                ),
                prompt_tokens=np.array([node.prompt_tokens for node in nodes], dtype=np.int64),
                resident_integral=np.array([node.resident_integral for node in nodes]),
                waiting_integral=np.array([node.waiting_integral for node in nodes]),
                kv_integral=np.array([node.held_integral * page_tokens for node in nodes]),
                kv_peak=np.array([node.held_peak * page_tokens for node in nodes], dtype=np.int64),
            ),
            links=LinkStatistics(
                bytes=np.array([link.bytes for link in links]),
                busy_s=np.array([link.busy_s for link in links]),
                waiting_integral=np.array([link.waiting_integral for link in links]),
                waiting_peak=np.array([link.waiting_peak for link in links], dtype=np.int64),
            ),
        )

    # Nodes

    def _step_done(self, number: int) -> None:
        passed = self._steps.end(number)
        if passed:
            self._hand_on(self._nodes[number], passed)
        self._steps.start(number)

    def _hand_on(self, node: Node, batch: list[Item]) -> None:
        messages = Messages(self._setup.grouped)
        for item in batch:
            request = item.request
            if is_gone(item):
                continue
            if item.ends_prompt or not item.tokens:
                request.stays[item.stage].left_s = self.now
            following = item.stage + 1
            if following < len(request.stages):
                item.stage = following
                size = max(item.tokens, 1) * self._setup.activation_bytes
                messages.add(item, request.stages[following].link, self._links.lane(item), size)
            elif item.ends_prompt or not item.tokens:
                self._return_token(node, item, messages)
        self._links.send(messages)

    def _return_token(self, node: Node, item: Item, messages: Messages) -> None:
        """To the coordinator; and to the first stage too, unless it hears of it from there."""
        request = item.request
        request.sampled += 1
        item.tokens = 0
        messages.add(item, request.link_home, DECODES, self._setup.token_bytes)
        if request.link_back == VIA_COORDINATOR or request.sampled == request.output_tokens:
            return
        opens_block = request.opens_block(self._setup.page_tokens)
        following = Item(request, 0, ends_prompt=False, opens_block=opens_block)
        if request.link_back == SAME_NODE:
            self._steps.add(node, following)
        else:
            messages.add(following, request.link_back, DECODES, self._setup.token_bytes)

    def _receive(self, message: Message) -> None:
        target = self._links.all[message.link].target
        if target == self._coordinator:
            self._collect(message)
            return
        node = self._nodes[target]
        node.account(self.now)
        for item in message.items:
            if is_gone(item):
                continue
            if item.tokens and not self._pages.enter(node, item):
                self._pages.lose(node, target, item.request, item.stage)
                continue
            self._steps.add(node, item)
            node.copied_tokens += max(item.tokens, 1)
        self._steps.start(target)

    # The coordinator

    def _collect(self, message: Message) -> None:
        messages = Messages(self._setup.grouped)
        for item in message.items:
            request = item.request
            if request.attempt != item.attempt:
                continue
            if request.produced == 0:
                request.first_token_s = self.now
                self._first_tokens += 1
                self._prompt_tokens += request.prompt_tokens
            else:
                self._gaps[bucket_of(self.now - request.last_token_s)] += 1
            request.produced += 1
            request.last_token_s = self.now
            self._output_tokens += 1
            if request.produced == 1:
                self._occur(OccurrenceKind.FIRST_TOKEN, request)
            if request.produced == request.output_tokens:
                self._leave(request)
                self._finished += 1
                self._occur(OccurrenceKind.FINISHED, request)
                continue
            if request.prompt_tokens + request.produced > request.grow_at:
                self._occur(OccurrenceKind.OUTGROWN, request)
            if request.link_back == VIA_COORDINATOR:
                item.stage = 0
                item.opens_block = request.opens_block(self._setup.page_tokens)
                messages.add(item, request.stages[0].link, DECODES, self._setup.token_bytes)
        self._links.send(messages)

    def _leave(self, request: Request) -> None:
        """It ends everywhere."""
        self._account_running()
        self._running -= 1
        for visit, stay in zip(request.stages, request.stays, strict=True):
            node = self._nodes[visit.node]
            node.account(self.now)
            node.resident -= 1
            give_back(node, stay, visit.layers)
        request.attempt += request.is_lost
        request.is_lost = False

    def _refused(self, request: Request, attempt: int) -> None:
        """The coordinator hears that a node has given the request up."""
        if request.attempt == attempt:  # else it had its last token before
            self._leave(request)
            self._preempted += 1
            self._occur(OccurrenceKind.PREEMPTED, request)

    def _occur(self, kind: OccurrenceKind, request: Request) -> None:
        tokens = request.prompt_tokens + request.produced
        self._occurred.append(
            Occurrence(kind, request.number, tokens, self.now, request.first_token_s)
        )

    # Bookkeeping

    def _foresee(
        self,
        time: float,
        kind: int,
        subject: int,
        version: int = 0,
        message: Message | None = None,
    ) -> None:
        self._order += 1
        heapq.heappush(self._events, (time, self._order, kind, subject, version, message))

    def _account_running(self) -> None:
        self._running_integral += self._running * (self.now - self._running_changed)
        self._running_changed = self.now
