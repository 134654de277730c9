"""ASGI middleware that has other APIs answered by the chat completions behind it.

The endpoint has the request's body translated once the key was checked; what it answers is
translated as it is written (`runtime.api.client_stream`).
"""

from collections.abc import Callable, Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.api.translation import TRANSLATION, Translation


class Translated:
    """Routes requests of other APIs to the endpoints that answer them; the application has it.

    `dialects` by their paths. Any request may bring its key in `x-api-key`.
    """

    def __init__(self, app: ASGIApp, *, dialects: Mapping[str, Callable[[], Translation]]) -> None:
        self._app = app
        self._dialects = dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = self._with_translation(_with_key(scope))
        await self._app(scope, receive, send)

    def _with_translation(self, scope: Scope) -> Scope:
        make = self._dialects.get(scope["path"]) if scope["method"] == "POST" else None
        if make is None:
            return scope
        translation = make()
        state = {**scope.get("state", {}), TRANSLATION: translation}
        path = translation.target
        return {**scope, "path": path, "raw_path": path.encode(), "state": state}


def _with_key(scope: Scope) -> Scope:
    headers = Headers(scope=scope)
    key = headers.get("x-api-key")
    if key is None or "authorization" in headers:
        return scope
    authorization = (b"authorization", f"Bearer {key}".encode("latin-1"))
    return {**scope, "headers": [*scope["headers"], authorization]}
