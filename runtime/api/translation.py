"""Other APIs than OpenAI's, answered by chat completions; `runtime.dialects` has them.

The endpoint has the request's body translated once the key was checked; what it answers is
translated as it is written (`runtime.api.client_stream`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.protocol.openai import ApiError

Json = dict[str, Any]
# In the state of a request that came by another API.
_TRANSLATION, _PATH = "translation", "asked_path"


class Translation(Protocol):
    """One request of another API. Every event that it makes names itself in `type`."""

    target: str  # the path that answers it

    def ignored(self, by_target: Iterable[str]) -> set[str]:
        """What the client gave and nothing depends on; the target names its parameters."""

    def request(self, body: bytes) -> Json:
        """The body for `target`. Raises ApiError."""

    def whole(self, answer: Json) -> Json:
        """The whole answer of the target, translated. Raises ApiError."""

    def part(self, chunk: Json) -> Iterator[Json]:
        """The events for one chunk of a stream. Raises ApiError."""

    def end(self) -> Iterator[Json]:
        """The events after the last chunk."""

    def refusal(self, error: ApiError) -> Json:
        """The body of an error answer."""

    def broken(self, error: ApiError) -> Iterator[Json]:
        """The last events of a stream that fails."""


def translation_of(scope: Scope) -> Translation | None:
    """None: the client asked by OpenAI's API."""
    found: Translation | None = scope.get("state", {}).get(_TRANSLATION)
    return found


def asked_path(scope: Scope) -> str:
    """The path by which the client asked."""
    path: str = scope.get("state", {}).get(_PATH, scope["path"])
    return path


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
        make = self._dialects.get(scope["path"])
        if make is None:
            return scope
        translation = make()
        state = {**scope.get("state", {}), _TRANSLATION: translation, _PATH: scope["path"]}
        path = translation.target
        return {**scope, "path": path, "raw_path": path.encode(), "state": state}


def _with_key(scope: Scope) -> Scope:
    headers = Headers(scope=scope)
    key = headers.get("x-api-key")
    if key is None or "authorization" in headers:
        return scope
    authorization = (b"authorization", f"Bearer {key}".encode("latin-1"))
    return {**scope, "headers": [*scope["headers"], authorization]}
