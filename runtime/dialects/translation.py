"""ASGI middleware that answers other APIs by the chat completions behind it.

A client's request is translated when the application reads its body, that is after the application
has checked the key. What the application sends is translated back on its way to the client.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.api.error_answers import read_body
from runtime.api.events import EventReader
from runtime.protocol.openai import ApiError
from runtime.protocol.openai_answers import IGNORED_HEADER

Json = dict[str, Any]


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


class Translated:
    """ASGI middleware that serves other APIs by the chat endpoint.

    `dialects` by their paths. Any request may bring its key in `x-api-key`.
    """

    def __init__(self, app: ASGIApp, *, dialects: Mapping[str, Callable[[], Translation]]) -> None:
        self._app = app
        self._dialects = dialects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = _with_key(scope)
        make = self._dialects.get(scope["path"]) if scope["method"] == "POST" else None
        if make is None:
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(make(), scope, receive, send)
        await self._app(exchange.scope, exchange.receive, exchange.send)


class _Exchange:
    """One translated request and its answer."""

    def __init__(
        self, translation: Translation, scope: Scope, receive: Receive, send: Send
    ) -> None:
        target = translation.target
        self.scope = {**scope, "path": target, "raw_path": target.encode()}
        self._translation = translation
        self._client = Request(scope, receive)
        self._receive = receive
        self._send = send
        self._is_read = False
        self._start: Message = {}
        self._held = b""  # of an answer that is no stream
        self._reader: EventReader | None = None  # of one that is
        self._has_ended = False

    async def receive(self) -> Message:
        """The translated body, then what the client's connection says. Raises ApiError."""
        if self._is_read:
            return await self._receive()
        body = self._translation.request(await read_body(self._client))
        self._is_read = True
        return {"type": "http.request", "body": _encoded(body), "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._reader is not None:
            await self._pass_events(self._reader, message)
        else:
            self._held += message.get("body", b"")
            if not message.get("more_body", False):
                await self._pass_whole()

    async def _begin(self, message: Message) -> None:
        self._start = {**message, "headers": list(message["headers"])}
        headers = MutableHeaders(raw=self._start["headers"])
        named = self._translation.ignored(headers.get(IGNORED_HEADER, "").split(", "))
        del headers[IGNORED_HEADER]
        if named:
            headers[IGNORED_HEADER] = ", ".join(sorted(named))
        if headers.get("content-type", "").startswith("text/event-stream"):
            self._reader = EventReader()
            await self._send(self._start)

    async def _pass_whole(self) -> None:
        status: int = self._start["status"]
        try:
            answer = _read(self._held)
            if status >= 400:
                raise _error_in(answer, status)
            body = self._translation.whole(answer)
        except ApiError as error:
            status, body = error.status, self._translation.refusal(error)
        content = _encoded(body)
        headers = MutableHeaders(raw=self._start["headers"])
        headers["content-length"] = str(len(content))
        headers["content-type"] = "application/json"
        await self._send({**self._start, "status": status})
        await self._send({"type": "http.response.body", "body": content, "more_body": False})

    async def _pass_events(self, reader: EventReader, message: Message) -> None:
        written = b""
        for event in reader.feed(message.get("body", b"")):
            if self._has_ended:
                continue
            if event.is_comment:
                written += b": waiting\n\n"
                continue
            try:
                if event.is_done:
                    self._has_ended = True
                    told = [*self._translation.end()]
                elif event.error is not None:
                    raise _error_in(event.body or {}, 500)
                else:
                    told = [*self._translation.part(event.body or {})]
            except ApiError as error:
                self._has_ended = True
                told = [*self._translation.broken(error)]
            written += b"".join(map(_event, told))
        await self._send({**message, "body": written})


def _with_key(scope: Scope) -> Scope:
    headers = Headers(scope=scope)
    key = headers.get("x-api-key")
    if key is None or "authorization" in headers:
        return scope
    authorization = (b"authorization", f"Bearer {key}".encode("latin-1"))
    return {**scope, "headers": [*scope["headers"], authorization]}


def _read(content: bytes) -> Json:
    """An answer; what is no JSON object is the message of an error."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    return body if isinstance(body, dict) else {"error": content[:300].decode(errors="replace")}


def _error_in(answer: Json, status: int) -> ApiError:
    """The error in an answer of ours, or of an engine whose answer was passed on."""
    told = answer.get("error", answer)
    if not isinstance(told, dict):
        told = {"message": told}
    fields = {name: str(told[name]) for name in ("param", "code") if told.get(name) is not None}
    return ApiError(
        status=status,
        message=str(told.get("message", "")),
        code=fields.get("code"),
        param=fields.get("param"),
        type_=str(told.get("type", "server_error")),
    )


def _event(body: Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (body["type"].encode(), _encoded(body))


def _encoded(body: Json) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()  # ASCII: half a surrogate has no UTF-8
