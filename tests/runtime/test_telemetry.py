"""Spans of requests at a collector's double, and nothing of it where nobody asked."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from coordinator_doubles import Clock, serving_plan, write_checkpoint
from coordinator_rig import Rig, with_coordinator
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from runtime.coordinator.request_life import Origin, RequestLife
from runtime.coordinator.telemetry import NoTelemetry, telemetry
from runtime.coordinator.tracing import Tracer
from runtime.openai_app import RequestIds
from runtime.protocol.request_trace import RequestTrace
from runtime.protocol.trace_context import TRACE, TraceContext, context_of
from tests.helixweb.request_traces import made_up_trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.paths: list[str] = []
        self.services: set[str] = set()
        self.spans: dict[str, Any] = {}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.paths.append(self.path)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.services.add(_attributes(resource.resource)["service.name"])
            for scope in resource.scope_spans:
                self.server.spans |= {span.name: span for span in scope.spans}
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def _attributes(holder: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes
    }


@contextmanager
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}"
    )
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def tell(trace: RequestTrace, context: TraceContext | None) -> None:
    told = telemetry()
    assert told is not None
    told.tell(trace, context)
    assert told.flush()
    told.close()


def test_a_request_is_a_span_of_its_clients_trace_with_its_queue_prefill_decode_and_hops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = context_of(PARENT, is_told=True, operation="chat")
    assert context is not None
    with collecting(monkeypatch) as collector:
        tell(made_up_trace(7), context)
    spans = collector.spans
    assert collector.paths == ["/v1/traces"]
    assert collector.services == {"helixweb-coordinator"}
    root = spans["chat tiny-llama"]
    assert root.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert root.parent_span_id.hex() == "b7ad6b7169203331"
    assert context.onward == f"00-{root.trace_id.hex()}-{root.span_id.hex()}-01"
    told = _attributes(root)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "tiny-llama"
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (64, 5)
    assert [one.string_value for one in told["gen_ai.response.finish_reasons"].values] == ["length"]
    assert root.end_time_unix_nano - root.start_time_unix_nano == 2_000_000_000
    for name in ("queue", "prefill", "decode"):
        assert spans[name].parent_span_id == root.span_id
        assert spans[name].trace_id == root.trace_id
    assert spans["queue"].end_time_unix_nano == spans["prefill"].start_time_unix_nano
    assert spans["prefill"].end_time_unix_nano == spans["decode"].start_time_unix_nano
    hop = spans["transfer laptop → tower"]
    assert hop.parent_span_id == spans["decode"].span_id
    assert _attributes(hop)["helix.busy_seconds"] == pytest.approx(0.05)
    assert spans["transfer tower → laptop"].parent_span_id == spans["prefill"].span_id
    assert root.status.code == 0
    within = range(root.start_time_unix_nano, root.end_time_unix_nano + 1)
    assert all(
        span.start_time_unix_nano in within and span.end_time_unix_nano in within
        for span in spans.values()
    )


def test_what_failed_in_the_queue_has_an_error_and_no_prefill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = made_up_trace(
        8, outcome="timeout", pipeline=(), rows=(), ttft_s=None, queue_s=2.0, output_tokens=0
    )
    with collecting(monkeypatch) as collector:
        tell(trace, None)
    assert set(collector.spans) == {"chat tiny-llama", "queue"}
    root = collector.spans["chat tiny-llama"]
    assert not root.parent_span_id
    assert _attributes(root)["error.type"] == "timeout"
    assert root.status.code == 2


def test_a_client_that_does_not_sample_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(monkeypatch) as collector:
        tell(made_up_trace(9), context_of(f"{PARENT[:-2]}00", is_told=True, operation="chat"))
    assert collector.spans == {}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00-short-b7ad6b7169203331-01",
        f"01{PARENT[2:]}",
        PARENT.upper(),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"{PARENT}\n",
        f"{PARENT}, {PARENT}",
    ],
)
def test_what_is_no_traceparent_begins_a_trace_or_says_nothing(header: str | None) -> None:
    assert context_of(header, is_told=False, operation="chat") is None
    begun = context_of(header, is_told=True, operation="chat")
    assert begun is not None
    assert (begun.parent_id, begun.came) == ("", "")
    assert len(begun.trace_id) == 32


@pytest.mark.parametrize("is_told", [True, False])
def test_whoever_is_asked_next_is_a_child_of_ours_if_we_tell_and_of_the_clients_if_not(
    is_told: bool,
) -> None:
    seen: list[TraceContext | None] = []

    async def face(http: Request) -> PlainTextResponse:
        seen.append(TRACE.get())
        return PlainTextResponse("x")

    app = RequestIds(Starlette(routes=[Route("/v1/completions", face)]), tells_traces=is_told)

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            await client.get("/v1/completions", headers={"traceparent": PARENT})
            await client.get("/v1/completions")

    import asyncio

    asyncio.run(ask())
    with_parent, without = seen
    assert with_parent is not None
    assert with_parent.operation == "text_completion"
    assert (with_parent.onward == PARENT) is not is_told
    assert with_parent.onward[:36] == PARENT[:36]
    assert (without is not None) is is_told


def test_a_request_that_ends_is_told_of_with_where_it_came_from(tmp_path: Path) -> None:
    told: list[tuple[RequestTrace, TraceContext | None]] = []

    def tell(trace: RequestTrace, context: TraceContext | None) -> None:
        told.append((trace, context))

    clock = Clock()
    tracer = Tracer(traces_per_s=5, clock=clock, unix_time=lambda: 1e9, tell=tell)
    origin = Origin(context=context_of(PARENT, is_told=True, operation="chat"))
    plan = serving_plan(tmp_path)
    tracer.ended_at_instances(RequestLife(arrived_at=clock.now, origin=origin), plan)
    ((trace, context),) = told
    assert trace.model_name == plan.model_name
    assert context is not None
    assert context.came == PARENT


def test_a_request_keeps_its_place_until_it_is_over(tmp_path: Path) -> None:
    async def visit(h: Rig) -> None:
        taken: list[TraceContext | None] = []
        submit = h.dispatcher.submit

        def noting(*args: Any, **kwargs: Any) -> Any:
            request = submit(*args, **kwargs)
            taken.append(request.origin.context)
            return request

        h.dispatcher.submit = noting  # type: ignore[method-assign]
        transport = httpx.ASGITransport(RequestIds(h.app, tells_traces=True))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://x", headers=h.client.headers
        ) as client:
            body = {"model": "tiny", "prompt": "hi", "max_tokens": 1}
            await client.post("/v1/completions", json=body, headers={"traceparent": PARENT})
        (context,) = taken
        assert context is not None
        assert context.came == PARENT

    with_coordinator(write_checkpoint(tmp_path / "checkpoint"), visit)


@pytest.mark.processes
def test_without_the_variable_nothing_is_loaded() -> None:
    script = (
        "import sys, runtime.coordinator.main, runtime.coordinator.telemetry as t;"
        "assert t.telemetry({}) is None;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_where_it_is_not_installed_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(NoTelemetry, match=r"pip install 'helixweb\[otel\]'"):
        telemetry({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})
