"""Time lines of requests that whole-model instances answer, as their coordinator sees them. Pure.

What happens within an engine it does not tell: from when it was asked until its first token, with
the prompt, is one part, and from there to its last token another.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.domain.cluster import COORDINATOR
from planner.domain.pipeline import Pipeline
from runtime.coordinator.tracing import TOKEN_TIMES_KEPT
from runtime.protocol.request_trace import (
    PartKind,
    PartPhase,
    RequestTrace,
    TracePart,
    TraceRow,
    TraceStage,
)
from runtime.protocol.trace_context import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRequest:
    """A request that is over; seconds of the coordinator's clock.

    `sent` is when it was sent to which instance, several where some failed; empty if it never was.
    `token_times_s` are those of the first tokens of a stream, `last_token_s` that of its last;
    `context` is its place in the traces of others.
    """

    arrived_s: float
    ended_s: float
    sent: Sequence[tuple[float, str]]
    token_times_s: Sequence[float]
    last_token_s: float
    outcome: str
    prompt_tokens: int
    output_tokens: int
    context: TraceContext | None = None


def trace_of_ended(
    ended: EndedRequest,
    *,
    generation: int,
    model_name: str,
    arrived_at: float,
    pipelines: Mapping[str, Pipeline],
) -> RequestTrace:
    """`arrived_at` in Unix seconds; `pipelines` by instance, its node as the one stage."""
    line = _Line(ended.arrived_s)
    visits = [(at_s, pipelines[name].stages) for at_s, name in ended.sent if name in pipelines]
    sent_s = [at_s for at_s, _ in visits]
    nodes = [stages[0].node for _, stages in visits]
    asked_s = sent_s[0] if sent_s else ended.ended_s
    line.add(COORDINATOR, PartKind.QUEUE, PartPhase.PROMPT, ended.arrived_s, asked_s)
    for began_s, again_s, node in zip(sent_s, sent_s[1:], nodes, strict=False):
        line.add(node, PartKind.LOST, PartPhase.PROMPT, began_s, again_s)
    tokens = ended.token_times_s
    if sent_s:
        node, first_s = nodes[-1], tokens[0] if tokens else ended.ended_s
        line.add(node, PartKind.ENGINE, PartPhase.PROMPT, sent_s[-1], first_s)
    if sent_s and tokens:
        last_s, count = ended.last_token_s, max(1, ended.output_tokens)
        line.add(node, PartKind.ENGINE, PartPhase.DECODE, tokens[0], last_s, count=count)
        line.add(COORDINATOR, PartKind.ENDING, PartPhase.DECODE, last_s, ended.ended_s)
    stages = visits[-1][1] if visits else ()
    return RequestTrace(
        request=f"{secrets.randbits(63):016x}",
        generation=generation,
        model_name=model_name,
        arrived_at=arrived_at,
        outcome=ended.outcome,
        prompt_tokens=ended.prompt_tokens,
        output_tokens=ended.output_tokens,
        queue_s=asked_s - ended.arrived_s,
        ttft_s=tokens[0] - ended.arrived_s if tokens else None,
        e2e_s=ended.ended_s - ended.arrived_s,
        attempts=max(1, len(sent_s)),
        pipeline=tuple(TraceStage(node=one.node, first=one.first, end=one.end) for one in stages),
        parts=tuple(line.parts),
        rows=tuple(line.rows),
        token_times_s=tuple(round(at_s - ended.arrived_s, 6) for at_s in tokens[:TOKEN_TIMES_KEPT]),
    )


class _Line:
    """Parts that follow one another, each a bar as well; none for no time."""

    def __init__(self, arrived_s: float) -> None:
        self._arrived_s = arrived_s
        self.parts: list[TracePart] = []
        self.rows: list[TraceRow] = []

    def add(
        self,
        node: str,
        kind: PartKind,
        phase: PartPhase,
        began_s: float,
        ended_s: float,
        *,
        count: int = 1,
    ) -> None:
        seconds = ended_s - began_s
        if seconds <= 0:
            return
        self.parts.append(
            TracePart(node=node, kind=kind, phase=phase, seconds=seconds, count=count)
        )
        begins_s, ends_s = round(began_s - self._arrived_s, 6), round(ended_s - self._arrived_s, 6)
        span = (begins_s, ends_s, round(seconds, 6), count)
        self.rows.append(TraceRow(node=node, kind=kind, phase=phase, spans=(span,)))
