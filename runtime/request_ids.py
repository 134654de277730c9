"""Gives every request of an ASGI app its id; see `runtime.protocol.logs`."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.protocol.logs import HEADER, REQUEST_ID, request_id_or_new


class RequestIds:
    """Middleware: while a request is answered its id is in `REQUEST_ID`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        token = REQUEST_ID.set(request_id_or_new(Headers(scope=scope).get(HEADER)))
        try:
            await self._app(scope, receive, send)
        finally:
            REQUEST_ID.reset(token)
