"""Sends traces of requests to an OpenTelemetry collector, if OTEL_EXPORTER_OTLP_ENDPOINT names one.

Nothing of OpenTelemetry is loaded, and nothing is sent, without it. Spans are made of the traces
that helixweb gets as well, when a request is over: the request, then queue, prefill and decode, and
in these what each node and each link took. Attributes are those of the GenAI conventions, and ours
as `helix.…`.
"""

import logging
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from runtime.protocol.complaints import StartRefused
from runtime.protocol.request_trace import PartKind, PartPhase, RequestTrace, TraceRow
from runtime.protocol.trace_context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NS_PER_S = 1_000_000_000
# What a client asked for, or did itself, is no error.
_NO_ERRORS = frozenset({"stop", "length", "cancelled"})


class NoTelemetry(StartRefused):
    """What is asked for is not installed; the message says how to get it."""


def telemetry(environment: Mapping[str, str] = os.environ) -> "Telemetry | None":
    """None: no collector is named. Raises NoTelemetry."""
    if not any(environment.get(name) for name in ENDPOINTS):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise NoTelemetry(
            f"{ENDPOINTS[0]} is set, but {error.name} is not installed; "
            "pip install 'helixweb[otel]', or unset it"
        ) from error
    resource = Resource.create(
        {"service.name": environment.get("OTEL_SERVICE_NAME") or "helixweb-coordinator"}
    )
    ids = _chosen_ids()
    provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Telemetry(provider, ids)


class Telemetry:
    """Owns the export of traces by OpenTelemetry; the tracer calls it.

    Call it from one thread; another sends what it gets.
    """

    def __init__(self, provider: "TracerProvider", ids: Any) -> None:
        self._provider = provider
        self._ids = ids
        self._tracer = provider.get_tracer("helixweb")

    def tell(self, trace: RequestTrace, context: TraceContext | None) -> None:
        """One request and what it did; `context` None: the client sent none."""
        from opentelemetry.trace import SpanKind

        self._ids.choose(context)
        operation = "chat" if context is None else context.operation
        root = self._tracer.start_span(
            f"{operation} {trace.model_name}",
            context=_parent(context),
            kind=SpanKind.SERVER,
            attributes={"gen_ai.operation.name": operation, **_of_request(trace)},
            start_time=_at(trace, 0.0),
        )
        self._ids.choose(None)
        _judge(root, trace)
        queue_s = min(trace.queue_s, trace.e2e_s)
        first_s = trace.e2e_s if trace.ttft_s is None else trace.ttft_s
        self._child(trace, root, "queue", 0.0, queue_s)
        phases = {}
        if trace.pipeline:
            phases[PartPhase.PROMPT] = self._child(trace, root, "prefill", queue_s, first_s)
            if trace.ttft_s is not None:
                phases[PartPhase.DECODE] = self._child(trace, root, "decode", first_s, trace.e2e_s)
        for row in trace.rows:
            if row.kind is not PartKind.QUEUE and row.spans:
                self._hop(trace, row, phases.get(row.phase, root))
        root.end(end_time=_at(trace, trace.e2e_s))

    def close(self) -> None:
        """What was not sent yet is, unless that takes too long."""
        self._provider.shutdown()

    def flush(self) -> bool:
        """Whether all was sent."""
        return self._provider.force_flush()

    def _hop(self, trace: RequestTrace, row: TraceRow, parent: "Span") -> None:
        """A node or a link, from when it first had to do with the phase to when it last had."""
        name = f"{row.kind.value} {row.node}" + (f" → {row.to}" if row.to else "")
        attributes = {
            "helix.node": row.node,
            "helix.kind": row.kind.value,
            "helix.busy_seconds": sum(busy for _, _, busy, _ in row.spans),
            "helix.count": sum(count for _, _, _, count in row.spans),
            **({"helix.to": row.to} if row.to else {}),
        }
        self._child(trace, parent, name, row.spans[0][0], row.spans[-1][1], attributes)

    def _child(
        self,
        trace: RequestTrace,
        parent: "Span",
        name: str,
        begins_s: float,
        ends_s: float,
        attributes: Mapping[str, Any] = MappingProxyType({}),
    ) -> "Span":
        """A span within `parent`, which may have ended."""
        from opentelemetry.trace import set_span_in_context

        span = self._tracer.start_span(
            name,
            context=set_span_in_context(parent),
            start_time=_at(trace, begins_s),
            attributes=attributes,
        )
        span.end(end_time=_at(trace, ends_s))
        return span


def _of_request(trace: RequestTrace) -> dict[str, Any]:
    told: dict[str, Any] = {
        "gen_ai.provider.name": "helixweb",
        "gen_ai.request.model": trace.model_name,
        "gen_ai.response.model": trace.model_name,
        "gen_ai.usage.input_tokens": trace.prompt_tokens,
        "gen_ai.usage.output_tokens": trace.output_tokens,
        # As vLLM names them.
        "gen_ai.latency.time_in_queue": trace.queue_s,
        "gen_ai.latency.e2e": trace.e2e_s,
        "helix.request": trace.request,
        "helix.generation": trace.generation,
        "helix.attempts": trace.attempts,
        "helix.pipeline": [f"{one.node} [{one.first}, {one.end})" for one in trace.pipeline],
    }
    if trace.ttft_s is not None:
        told["gen_ai.latency.time_to_first_token"] = trace.ttft_s
    if trace.outcome in ("stop", "length"):
        told["gen_ai.response.finish_reasons"] = [trace.outcome]
    return told


def _judge(span: "Span", trace: RequestTrace) -> None:
    from opentelemetry.trace import Status, StatusCode

    if trace.outcome not in _NO_ERRORS:
        span.set_attribute("error.type", trace.outcome)
        span.set_status(Status(StatusCode.ERROR, trace.outcome))


def _parent(context: TraceContext | None) -> Any:
    """None: the trace begins here."""
    if context is None or not context.parent_id:
        return None
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    parent = SpanContext(
        trace_id=int(context.trace_id, 16),
        span_id=int(context.parent_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(context.is_sampled)),
    )
    return set_span_in_context(NonRecordingSpan(parent))


def _chosen_ids() -> Any:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class ChosenIds(RandomIdGenerator):
        """Gives the next span the ids that were passed on already."""

        def __init__(self) -> None:
            self._chosen: TraceContext | None = None

        def choose(self, context: TraceContext | None) -> None:
            self._chosen = context

        def generate_span_id(self) -> int:
            chosen = self._chosen
            return super().generate_span_id() if chosen is None else int(chosen.span_id, 16)

        def generate_trace_id(self) -> int:
            chosen = self._chosen
            return super().generate_trace_id() if chosen is None else int(chosen.trace_id, 16)

    return ChosenIds()


def _at(trace: RequestTrace, seconds: float) -> int:
    """Nanoseconds since 1970; nothing of a request is before it or after it."""
    within = min(max(seconds, 0.0), trace.e2e_s)
    return int(trace.arrived_at * _NS_PER_S) + int(within * _NS_PER_S)
