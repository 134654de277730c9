"""A whole-model instance with continuous batching: iterations, not a model run.

It takes its times from a fitted latency model (Xiong et al. §3.1). An iteration either
brings waiting prompts in, as many as have room and as a step may hold, or makes one token for every
request that runs, as engines that put prompts first do. When a growing batch runs out of room, the
youngest request is preempted and restarts with the tokens it has.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field

from planner.latency_model import LatencyModel
from planner.workload.request import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """Capacity and speed of an instance; `most_prompt_tokens` bound a prefill."""

    latency: LatencyModel
    kv_room_tokens: int
    most_requests: int = 256
    most_prompt_tokens: int = 8192


@dataclass(slots=True, kw_only=True)
class _Running:
    """`context` tokens when it was let in, after `since` decode iterations; ends after `until`."""

    number: int
    context: int
    since: int
    until: int


@dataclass(slots=True)
class Instance:
    """`finished_s` is when its last request ended, 0 without any."""

    spec: InstanceSpec
    now_s: float = 0.0
    decodes: int = 0  # iterations so far
    context_tokens: int = 0
    # number, prompt tokens, tokens still to make
    waiting: deque[tuple[int, int, int]] = field(default_factory=deque)
    running: dict[int, _Running] = field(default_factory=dict)  # the youngest last
    ends: list[tuple[int, int]] = field(default_factory=list)  # heap: iteration, number
    finished_s: float = 0.0
    preemptions: int = 0

    def take(self, number: int, length: Lengths, *, at_s: float = 0.0) -> None:
        """A request comes. Raises ValueError for one that never fits."""
        whole = length.prompt_tokens + length.output_tokens
        if whole > self.spec.kv_room_tokens:
            raise ValueError(
                f"request {number} of {whole} tokens does not fit into an instance with room for "
                f"{self.spec.kv_room_tokens}"
            )
        if not self.waiting and not self.running:
            self.now_s = max(self.now_s, at_s)
        self.waiting.append((number, length.prompt_tokens, length.output_tokens))

    def advance(self, *, until_s: float) -> list[int]:
        """Run iterations that begin before `until_s`; returns the requests that ended."""
        done: list[int] = []
        while self.now_s < until_s and (self.waiting or self.running):
            if not self._prefill():
                self._decode()
            while self.ends and self.ends[0][0] <= self.decodes:
                until, number = heapq.heappop(self.ends)
                one = self.running.get(number)
                if one is not None and one.until == until:
                    self._leave(one)
                    self.finished_s = self.now_s
                    done.append(number)
        return done

    def _prefill(self) -> bool:
        """Bring in what has room; each makes its first token."""
        spec, taken, tokens = self.spec, 0, 0
        while self.waiting and len(self.running) < spec.most_requests:
            number, prompt, left = self.waiting[0]
            room = spec.kv_room_tokens - self.context_tokens - len(self.running)
            if prompt + 1 > room or (taken and tokens + prompt > spec.most_prompt_tokens):
                break
            self.waiting.popleft()
            taken, tokens = taken + 1, tokens + prompt
            until = self.decodes + left - 1
            self.running[number] = _Running(
                number=number, context=prompt + 1, since=self.decodes, until=until
            )
            self.context_tokens += prompt + 1
            heapq.heappush(self.ends, (until, number))
        if taken:
            self.now_s += spec.latency.prefill_s(batch=taken, input_tokens=tokens / taken)
        return taken > 0

    def _decode(self) -> None:
        while self.context_tokens + len(self.running) > self.spec.kv_room_tokens:
            self._preempt()
        count = len(self.running)
        self.now_s += self.spec.latency.decode_step_s(
            batch=count, context_tokens=self.context_tokens / count
        )
        self.decodes += 1
        self.context_tokens += count

    def _preempt(self) -> None:
        one = self.running[next(reversed(self.running))]
        context = one.context + self.decodes - one.since
        self._leave(one)
        self.preemptions += 1
        self.waiting.appendleft((one.number, context, one.until - self.decodes))

    def _leave(self, one: _Running) -> None:
        del self.running[one.number]
        self.context_tokens -= one.context + self.decodes - one.since
