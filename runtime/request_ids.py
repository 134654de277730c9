"""Gives every request of an ASGI app its id and its place in traces.

See `runtime.protocol.logs` and `runtime.protocol.trace_context`.
"""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.protocol import trace_context
from runtime.protocol.logs import HEADER, REQUEST_ID, request_id_or_new
from runtime.protocol.trace_context import CHAT, COMPLETION, TRACE, context_of


class RequestIds:
    """ASGI middleware that gives each request its id and trace context.

    Middleware: while a request is answered both are in context. `tells_traces`: a span is told
    of requests, so that what is asked next is a child of it.
    """

    def __init__(self, app: ASGIApp, *, tells_traces: bool = False) -> None:
        self._app = app
        self._tells_traces = tells_traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        operation = COMPLETION if scope["path"] == "/v1/completions" else CHAT
        trace = context_of(
            headers.get(trace_context.HEADER), is_told=self._tells_traces, operation=operation
        )
        request_id = REQUEST_ID.set(request_id_or_new(headers.get(HEADER)))
        place = TRACE.set(trace)
        try:
            await self._app(scope, receive, send)
        finally:
            TRACE.reset(place)
            REQUEST_ID.reset(request_id)
