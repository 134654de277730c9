"""Load of nodes as a coordinator can know it; the simulator's routers know no more."""

import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from planner.domain.pipeline import Pipeline
from planner.routers.base import RequestSize

# Output tokens are counted when a request leaves, so rates are those of some requests, not of one.
_MEMORY_S = 30.0


@dataclass(slots=True, kw_only=True)
class _UnderWay:
    """A request on its pipeline; `counted` are its tokens that have been counted already."""

    pipeline: Pipeline
    prompt_tokens: int
    is_queued: bool
    counted: int = 0


class NodeLoad:
    """Counts requests in flight; those that wait for their first token count as queued.

    A `LoadView`. The code that admits requests updates it when a request is routed, when its first
    token comes, and when it leaves its pipeline.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._under_way: dict[Hashable, _UnderWay] = {}
        self._running_at: Counter[str] = Counter()
        self._queued_at: Counter[str] = Counter()
        self._tokens_at: Counter[str] = Counter()
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}  # node -> when, tokens then
        self._rates: dict[str, float] = {}

    def admit(
        self, request: Hashable, pipeline: Pipeline, *, size: RequestSize, is_new: bool = True
    ) -> None:
        """Count a request whose prompt was sent.

        One that starts again after its first token is not new, and does not count as queued.
        """
        self._under_way[request] = _UnderWay(
            pipeline=pipeline, prompt_tokens=size.prompt_tokens, is_queued=is_new
        )
        for stage in pipeline.stages:
            self._running_at[stage.node] += 1
            self._queued_at[stage.node] += is_new

    def first_token(self, request: Hashable) -> None:
        """Record that its prompt has passed every stage."""
        held = self._under_way[request]
        held.is_queued = False
        for stage in held.pipeline.stages:
            self._queued_at[stage.node] -= 1
        self._count(held, held.prompt_tokens)

    def release(self, request: Hashable, *, total_tokens: int) -> None:
        """Remove a request that ended with prompt and output of `total_tokens`."""
        held = self._under_way.pop(request)
        for stage in held.pipeline.stages:
            self._running_at[stage.node] -= 1
            self._queued_at[stage.node] -= held.is_queued
        if total_tokens > held.prompt_tokens:  # else it may have passed no stage at all
            self._count(held, total_tokens - held.counted)

    def queued(self, node: str) -> int:
        """Requests whose first prompt has not passed all stages yet."""
        return self._queued_at[node]

    def in_flight(self, node: str) -> int:
        """Requests that are running through the node."""
        return self._running_at[node]

    def tokens_per_s(self, node: str) -> float | None:
        """Prompt and output tokens that passed the node lately; None before anything did.

        Smoothed over about `_MEMORY_S`, and read from the counters at most once in a tenth of it.
        """
        now, total = self._clock(), self._tokens_at[node]
        then, before = self._seen.setdefault(node, (now, total))
        elapsed_s = now - then
        if elapsed_s >= _MEMORY_S / 10:
            self._seen[node] = now, total
            rate = (total - before) / elapsed_s
            if node in self._rates:
                forgotten = 1.0 - math.exp(-elapsed_s / _MEMORY_S)
                self._rates[node] += forgotten * (rate - self._rates[node])
            elif rate > 0:
                self._rates[node] = rate
        return self._rates.get(node)

    def _count(self, held: _UnderWay, tokens: int) -> None:
        held.counted += tokens
        for stage in held.pipeline.stages:
            self._tokens_at[stage.node] += tokens
