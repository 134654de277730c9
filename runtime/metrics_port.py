"""Where Prometheus reads a process: a route, and a port of its own on this machine's loopback.

The port asks for no key, so it is there only when asked for, and only programs of this machine
reach it; a page in a browser, whose host name leads there, is turned away.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runtime.http_process import HttpServer, listen
from runtime.protocol.exposition import CONTENT_TYPE

LOOPBACK = "127.0.0.1"


def metrics_route(page: Callable[[], bytes]) -> Route:
    """GET /metrics."""

    async def metrics(http: Request) -> Response:
        return Response(page(), headers={"Content-Type": CONTENT_TYPE})

    return Route("/metrics", metrics, methods=["GET"])


@asynccontextmanager
async def metrics_port(port: int | None, page: Callable[[], bytes]) -> AsyncIterator[int | None]:
    """Answers while inside; yields the port, of which 0 chooses any. None: there is none.

    Raises CannotListen.
    """
    if port is None:
        yield None
        return
    listener = listen(LOOPBACK, port, option="--metrics-port")
    app = Starlette(
        routes=[metrics_route(page)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])],
    )
    server = HttpServer(app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        await serving
