"""The OpenAI application: its routes, who may ask, and how errors look, for all kinds of backends.

/v1/chat/completions, /v1/completions, /v1/embeddings, /tokenize, /v1/models (all or one) and
/health; a process may add others. `runtime.dialects` translates other APIs to these.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, get_args

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.api.access import ApiKeys, RequireApiKey
from runtime.api.error_answers import EXCEPTION_HANDLERS, read_body
from runtime.api.events import encoded
from runtime.api.translation import Translated, translation_of
from runtime.dialects import DIALECTS
from runtime.protocol import trace_context
from runtime.protocol.logs import HEADER, REQUEST_ID, request_id_or_new
from runtime.protocol.openai import model_not_found
from runtime.protocol.trace_context import CHAT, COMPLETION, TRACE, context_of

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize"]


class Backend(Protocol):
    """What answers requests: pipelines of stages, or instances."""

    async def answer(self, endpoint: Endpoint, body: bytes, *, owner: str) -> ASGIApp:
        """`owner`: the hash of the client's key. Raises ApiError."""

    def model(self) -> dict[str, object] | None:
        """What is said of the model that is served, beside what is said of all; None: there is
        none."""

    def health(self, http: Request) -> Response:
        """200 while requests are answered, else 503."""


def assemble(
    backend: Callable[[], Backend],
    *,
    keys: ApiKeys,
    routes: Sequence[Route] = (),
    tells_traces: bool = False,
) -> Starlette:
    """`backend`: what answers now. `routes`: those that this process has beside. `tells_traces`:
    each request gives a span."""
    endpoints = _Endpoints(backend)
    app = Starlette(
        routes=[
            *(
                Route(endpoint, partial(endpoints.answer, endpoint), methods=["POST"])
                for endpoint in get_args(Endpoint)
            ),
            Route("/v1/models", endpoints.models, methods=["GET"]),
            Route("/v1/models/{name:path}", endpoints.model, methods=["GET"]),
            Route("/health", endpoints.health, methods=["GET"]),
            *routes,
        ],
        middleware=[
            Middleware(RequestIds, tells_traces=tells_traces),
            Middleware(Translated, dialects=DIALECTS),
            Middleware(RequireApiKey, keys=keys),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.router.redirect_slashes = False  # clients do not send a body again
    return app


class _Endpoints:
    def __init__(self, backend: Callable[[], Backend]) -> None:
        self._backend = backend

    async def answer(self, endpoint: Endpoint, http: Request) -> ASGIApp:
        body = await read_body(http)
        if (translation := translation_of(http.scope)) is not None:
            body = encoded(translation.request(body))
        return await self._backend().answer(endpoint, body, owner=http.state.owner)

    async def models(self, http: Request) -> Response:
        entry = self._entry()
        return JSONResponse({"object": "list", "data": [] if entry is None else [entry]})

    async def model(self, http: Request) -> Response:
        entry, name = self._entry(), http.path_params["name"]
        if entry is None or entry["id"] != name:
            raise model_not_found(name, available=None if entry is None else str(entry["id"]))
        return JSONResponse(entry)

    async def health(self, http: Request) -> Response:
        return self._backend().health(http)

    def _entry(self) -> dict[str, object] | None:
        told = self._backend().model()
        if told is None:
            return None
        name = told["id"]
        common = {"id": name, "object": "model", "created": 0, "owned_by": "helixweb"}
        return {**common, "root": name, **told}  # `vllm bench serve` reads root


class RequestIds:
    """ASGI middleware that gives each request its id and trace context.

    Middleware: while a request is answered both are in context. `tells_traces`: each request has a
    span, so that what is asked next is a child of it.
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
