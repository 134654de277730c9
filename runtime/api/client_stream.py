"""What a client is answered, in the API that it asked by: a whole answer, a stream, an error."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runtime.api.error_answers import error_response
from runtime.api.events import DONE, WAITING, encoded, stream_part, stream_start
from runtime.api.translation import Json, translation_of
from runtime.disconnect import no_more
from runtime.protocol.openai import ApiError
from runtime.protocol.openai_answers import IGNORED_HEADER

QUIET_S = 10.0  # a stream says that it lives when nothing else was said for so long
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class ClientStream:
    """Writes one answer to its client; the answers of pipelines and instances make one each.

    What it is given is of chat completions, and is translated if the client asked by another API.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._translation = translation_of(scope)
        self.is_open = False  # the stream has begun
        self.is_ended = False
        self._turn = asyncio.Lock()  # to write, of the answer and what keeps it alive
        self._wrote_s = time.monotonic()

    async def respond(self, body: Json, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """The whole answer."""
        try:
            told = body if self._translation is None else self._translation.whole(body)
        except ApiError as error:
            await self.fail(error, headers)
            return
        headers = self._naming_ignored(headers)
        await self._respond(Response(encoded(told), media_type="application/json", headers=headers))

    async def fail(self, error: ApiError, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        """End with an error; in a stream with its events."""
        async with self._turn:
            if self.is_open:
                await self._write(b"".join(self._failing(error)), is_last=True)
            else:
                headers = self._naming_ignored(headers)
                await self._respond(error_response(error, self._scope, headers))

    async def refuse(
        self, status: int, content: bytes, *, media_type: str, headers: Mapping[str, str]
    ) -> None:
        """End with the error of an engine: as it came, unless it must be translated."""
        async with self._turn:
            if self._translation is None and not self.is_open:
                await self._respond(
                    Response(content, status_code=status, media_type=media_type, headers=headers)
                )
        if not self.is_ended:
            await self.fail(_error_in(content, status), headers)

    async def open(self, headers: Mapping[str, str]) -> None:
        """Begin the stream, if it has not begun."""
        async with self._turn:
            await self._open(headers)

    async def send(self, chunks: Sequence[Json], *, is_last: bool = False) -> None:
        """Chunks of the open stream."""
        parts: list[bytes] = []
        try:
            parts.extend(self._events(chunks, is_last=is_last))
        except ApiError as error:  # not to be translated
            parts.extend(self._failing(error))
            is_last = True
        async with self._turn:
            await self._write(b"".join(parts), is_last=is_last)

    async def keep_alive(self, headers: Callable[[], Mapping[str, str]]) -> None:
        """Send a comment, which clients skip, where nothing was sent for `QUIET_S`; never return.

        The first one begins the stream, with these headers.
        """
        while not self.is_ended:
            await asyncio.sleep(self._wrote_s + QUIET_S - time.monotonic())
            async with self._turn:
                if not self.is_ended and time.monotonic() >= self._wrote_s + QUIET_S:
                    await self._open(headers())
                    await self._write(WAITING, is_last=False)
        await asyncio.Event().wait()  # what answers has more to do

    def _events(self, chunks: Sequence[Json], *, is_last: bool) -> Iterator[bytes]:
        translation = self._translation
        if translation is None:
            yield from map(_event, chunks)
            if is_last:
                yield DONE
            return
        for chunk in chunks:
            yield from map(_named_event, translation.part(chunk))
        if is_last:
            yield from map(_named_event, translation.end())

    def _failing(self, error: ApiError) -> Iterator[bytes]:
        if self._translation is None:
            yield from (_event(error.body()), DONE)
        else:
            yield from map(_named_event, self._translation.broken(error))

    def _naming_ignored(self, headers: Mapping[str, str]) -> dict[str, str]:
        """With what the client gave and nothing depends on by the client's own names."""
        told = dict(headers)
        if self._translation is not None:
            by_target = told.pop(IGNORED_HEADER, "").split(", ")
            if named := self._translation.ignored(by_target):
                told[IGNORED_HEADER] = ", ".join(sorted(named))
        return told

    async def _open(self, headers: Mapping[str, str]) -> None:
        if not self.is_open:
            await self._send(stream_start(self._naming_ignored(headers)))
            self.is_open = True

    async def _respond(self, response: Response) -> None:
        self.is_ended = True
        await response(self._scope, no_more, self._send)

    async def _write(self, content: bytes, *, is_last: bool) -> None:
        """After the end nothing is written."""
        if not self.is_ended:
            self.is_ended = is_last
            self._wrote_s = time.monotonic()
            await self._send(stream_part(content, is_last=is_last))


class WholeAnswer:
    """An ASGI response that is known already."""

    def __init__(self, body: Json) -> None:
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await ClientStream(scope, send).respond(self._body)


def _event(body: Json) -> bytes:
    return b"data: %s\n\n" % encoded(body)


def _named_event(body: Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (body["type"].encode(), encoded(body))


def _error_in(content: bytes, status: int) -> ApiError:
    """The error in an answer of an engine."""
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = content[:300].decode(errors="replace")
    if isinstance(told, dict):
        told = told.get("error", told)
    if not isinstance(told, dict):
        told = {"message": told}
    code, param = told.get("code"), told.get("param")
    return ApiError(
        status=status,
        message=str(told.get("message", "")),
        code="refused" if code is None else str(code),
        param=None if param is None else str(param),
        type_=str(told.get("type", "server_error")),
    )
