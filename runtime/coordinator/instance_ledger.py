"""Counts what instances answer into the coordinator's numbers, as pipelines' requests are counted.

What went to the plan's own pipelines is left out: the dispatcher counts that.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from planner.domain.pipeline import Pipeline
from runtime.coordinator.instance_traces import EndedRequest
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.tracing import TOKEN_TIMES_KEPT
from runtime.front.ledger import Ledger
from runtime.protocol.instance_orders import PIPELINES
from runtime.protocol.trace_context import TRACE, TraceContext


@dataclass(slots=True, kw_only=True)
class _Open:
    """A request. `counted`: among those that arrived."""

    arrived_s: float
    asker: str
    instance: str | None = None
    counted: bool = False
    sent_s: float | None = None
    first_s: float | None = None
    last_s: float = 0.0
    tokens: int = 0
    answered: bool = False
    sent: list[tuple[float, str]] = field(default_factory=list)
    token_times_s: list[float] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    context: TraceContext | None = None


class InstanceLedger(Ledger):
    """Counts requests of instances as those of pipelines are counted; answers call it.

    `pipelines`: by instance, its node as the one stage of all layers. `traced` is given every
    request that ends at an instance.
    """

    def __init__(
        self,
        *,
        stats: RequestStats,
        pipelines: Mapping[str, Pipeline],
        clock: Callable[[], float],
        traced: Callable[[EndedRequest], None] = lambda ended: None,
    ) -> None:
        self._traced = traced
        self._stats = stats
        self._pipelines = pipelines
        self._clock = clock
        self._open: dict[int, _Open] = {}

    def arrived(self, request: int, *, asker: str) -> None:
        self._open[request] = _Open(arrived_s=self._clock(), asker=asker, context=TRACE.get())

    def sent(self, request: int, instance: str) -> None:
        one = self._open[request]
        one.instance = instance
        one.sent.append((self._clock(), instance))
        if instance == PIPELINES:
            return
        self._count(one)
        one.sent_s = one.sent_s or self._clock()
        self._stats.routed(
            self._pipelines[instance], prompt_tokens=0, queue_s=self._clock() - one.arrived_s
        )

    def produced(self, request: int, tokens: int) -> None:
        one, now_s = self._open[request], self._clock()
        pipeline = self._pipeline_of(one)
        if pipeline is None:
            return
        for _ in range(tokens):
            if len(one.token_times_s) < TOKEN_TIMES_KEPT:
                one.token_times_s.append(now_s)
            if one.first_s is None:
                one.first_s = one.last_s = now_s
                self._stats.first_token(pipeline, prompt_tokens=0, ttft_s=now_s - one.arrived_s)
            else:
                self._stats.next_token(pipeline, gap_s=now_s - one.last_s)
                one.last_s = now_s
            one.tokens += 1
            self._stats.spending.given(one.asker, output_tokens=1)

    def answered(self, request: int, usage: tuple[int, int] | None) -> None:
        one, now_s = self._open[request], self._clock()
        pipeline = self._pipeline_of(one)
        if pipeline is None:
            return
        one.answered, one.usage = True, usage
        if usage is not None:
            prompt, output = usage
            unseen = max(0, output - one.tokens)
            self._stats.spending.given(one.asker, prompt_tokens=prompt, output_tokens=unseen)
            if prompt:
                self._stats.prompt_read(pipeline, tokens=prompt)
            if unseen:
                self._stats.answer_read(pipeline, tokens=unseen)
        if one.first_s is not None:
            self._stats.finished(
                e2e_s=now_s - one.arrived_s,
                ttft_s=one.first_s - one.arrived_s,
                output_tokens=one.tokens,
            )
            self._stats.counted(
                queue_s=(one.sent_s or now_s) - one.arrived_s,
                ttft_s=one.first_s - one.arrived_s,
                e2e_s=now_s - one.arrived_s,
                prompt_tokens=None if usage is None else usage[0],
                output_tokens=one.tokens if usage is None else usage[1],
            )
        else:
            self._stats.finished_whole(e2e_s=now_s - one.arrived_s)

    def gone(self, request: int, *, failed: bool) -> None:
        one = self._open.pop(request)
        if one.instance == PIPELINES:
            return
        if failed:
            self._count(one)
            self._stats.failed()
        if one.counted:
            self._stats.came_to(_outcome(one, failed=failed))
        self._traced(_ended(one, outcome=_outcome(one, failed=failed), ended_s=self._clock()))

    def _count(self, one: _Open) -> None:
        if not one.counted:
            one.counted = True
            self._stats.arrived()

    def _pipeline_of(self, one: _Open) -> Pipeline | None:
        """None of a request that the plan's pipelines have."""
        return None if one.instance is None else self._pipelines.get(one.instance)


def _ended(one: _Open, *, outcome: str, ended_s: float) -> EndedRequest:
    prompt, output = one.usage or (0, one.tokens)
    return EndedRequest(
        arrived_s=one.arrived_s,
        ended_s=ended_s,
        sent=one.sent,
        token_times_s=one.token_times_s,
        last_token_s=one.last_s,
        outcome=outcome,
        prompt_tokens=prompt,
        output_tokens=output,
        context=one.context,
    )


def _outcome(one: _Open, *, failed: bool) -> str:
    """What is known of it: an instance's answer is not read for why it stopped."""
    if one.answered:
        return "stop"
    return "failed" if failed else "cancelled"
