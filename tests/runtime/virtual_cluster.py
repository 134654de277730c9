"""Emulated stages in virtual time: the real loop, batcher, cap and pages, whole minutes in seconds.

Each stage has a clock of its own. The one whose next moment is earliest takes a turn: it takes in
what has arrived by then, runs a step, which moves its clock, and what it sends arrives later.
"""

import heapq
import itertools

import numpy as np
from emulated_cluster import LAYERS, emulation_of

from planner.domain.layer_times import LayerTimes
from runtime.engine.backend import Opened
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Route, Sampling
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import Received

_NEVER = float("inf")


class _Node:
    """A stage, its clock and what is on the way to it; implements `Transport`."""

    def __init__(self, cluster: "VirtualCluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.now_s = 0.0
        self.inbox: list[tuple[float, int, Received]] = []
        self.stage: Stage

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def send(self, peer: str, message: Message) -> None:
        self.cluster.deliver(self.name, peer, message, now_s=self.now_s)

    def receive(self, *, timeout_s: float) -> list[Received]:
        arrived = []
        while self.inbox and self.inbox[0][0] <= self.now_s:
            arrived.append(heapq.heappop(self.inbox)[2])
        return arrived

    def close(self) -> None:
        """Nothing is held."""

    def next_s(self) -> float:
        """When it acts next: now while it has rows to run, else at the next arrival."""
        if self.stage.has_work:
            return self.now_s
        return max(self.now_s, self.inbox[0][0]) if self.inbox else _NEVER


class VirtualCluster:
    """A chain of `stages` equal stages that always has `requests` requests."""

    def __init__(
        self,
        *,
        stages: int,
        requests: int,
        latency_s: float,
        times: LayerTimes,
        options: EngineOptions,
        max_batch_tokens: int = 512,
        prompt_tokens: int = 64,
        output_tokens: int = 60,
    ) -> None:
        self._latency_s = latency_s
        self._numbers = itertools.count()
        self._prompt_tokens = prompt_tokens
        self._output_tokens = output_tokens
        self.tokens: list[float] = []  # when each came
        per_stage = LAYERS // stages
        self.nodes = {f"n{index}": _Node(self, f"n{index}") for index in range(stages)}
        self._hops = tuple(
            Hop(node=name, first=index * per_stage, end=(index + 1) * per_stage)
            for index, name in enumerate(self.nodes)
        )
        for hop, node in zip(self._hops, self.nodes.values(), strict=True):
            node.stage = Stage(
                node.name,
                Opened(
                    backend=EmulatedRunner(
                        emulation_of(pages=100_000, times=times),
                        first=hop.first,
                        end=hop.end,
                        page_tokens=4,
                        clock=node.clock,
                        sleep=node.sleep,
                    ),
                    limits=EngineLimits(
                        page_tokens=4, max_batch_tokens=max_batch_tokens, max_context_tokens=4096
                    ),
                ),
                node,
                options,
                generation=1,
                process=StageProcess(clock=node.clock, sleep=node.sleep),
            )
        for number in range(requests):
            # spread over the length of an answer, so that they do not begin as one convoy
            self._begin(now_s=0.0, output_tokens=1 + number % output_tokens)

    def run(self, *, until_s: float) -> None:
        while True:
            node = min(self.nodes.values(), key=_Node.next_s)
            next_s = node.next_s()
            if next_s > until_s:
                return
            node.now_s = next_s
            turns = iter((False, True))
            node.stage.run(lambda turns=turns: next(turns))

    def tokens_per_s(self, *, since_s: float, until_s: float) -> float:
        return sum(since_s <= at_s < until_s for at_s in self.tokens) / (until_s - since_s)

    def deliver(self, sender: str, peer: str, message: Message, *, now_s: float) -> None:
        if peer != "coordinator":
            arrival = (now_s + self._latency_s, next(self._numbers))
            received = Received(sender=sender, message=message)
            heapq.heappush(self.nodes[peer].inbox, (*arrival, received))
            return
        assert message.kind in (Kind.SAMPLED, Kind.STATUS)
        for entry in message.entries:
            self.tokens.append(now_s)
            if Flag.FINISHED in entry.flags:
                self._end(entry, now_s=now_s)
                self._begin(now_s=now_s, output_tokens=self._output_tokens)

    def _begin(self, *, now_s: float, output_tokens: int) -> None:
        request = next(self._numbers)
        sampling = Sampling(
            temperature=1.0, top_p=1.0, top_k=0, seed=request, max_tokens=output_tokens
        )
        ids = np.random.default_rng(request).integers(0, 300, self._prompt_tokens)
        entry = Entry(
            request=request,
            epoch=0,
            position=0,
            n_tokens=self._prompt_tokens,
            hop=0,
            flags=Flag.PROMPT_END,
            route=Route(hops=self._hops, sampling=sampling, prompt_tokens=self._prompt_tokens),
        )
        message = Message(
            kind=Kind.PROMPT,
            generation=1,
            entries=(entry,),
            dtype=DType.INT32,
            payload=ids.astype("<i4").tobytes(),
        )
        self.deliver("coordinator", self._hops[0].node, message, now_s=now_s)

    def _end(self, entry: Entry, *, now_s: float) -> None:
        ended = Entry(request=entry.request, epoch=0, position=0, n_tokens=0, hop=0)
        message = Message(kind=Kind.RELEASE, generation=1, entries=(ended,))
        for name in self.nodes:
            self.deliver("coordinator", name, message, now_s=now_s)
