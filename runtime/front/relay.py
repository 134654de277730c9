"""One request to one instance over HTTP."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from runtime.api.events import COMMENT, Event, EventReader, Garbage
from runtime.front.asked import Asked
from runtime.front.target import (
    LACKING,
    QUIET_S,
    Errored,
    InstanceFailed,
    Lacks,
    TooSlow,
    Unreachable,
    refusal,
    shown,
)
from runtime.instances.asking import headers_of
from runtime.instances.command_lines import InstanceAddress
from runtime.instances.pinned import instance_client, pinned_to
from runtime.protocol import trace_context
from runtime.protocol.logs import HEADER, NO_REQUEST, REQUEST_ID
from runtime.protocol.openai_answers import IGNORED_HEADER
from runtime.protocol.trace_context import TRACE

MOST_ANSWER_BYTES = 64 << 20
_MOST_SHOWN = 200
_CONNECT_TIMEOUT_S = 5.0
_KEEP_IDLE_S = 2.0
_LONGEST_RETRY_S = 3600.0


def relay_client(request_timeout_s: float) -> httpx.AsyncClient:
    """As many connections as requests; a token may be as late as the timeout.

    Idle ones are closed before a server closes them, which would look like its failure: uvicorn,
    which most engines use, does after 5 s.
    """
    return instance_client(
        timeout=httpx.Timeout(request_timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=64, keepalive_expiry=_KEEP_IDLE_S
        ),
    )


class InstanceTarget:
    """The target of requests behind `address`."""

    def __init__(self, http: httpx.AsyncClient, address: InstanceAddress) -> None:
        self._http = http
        self._address = address

    async def whole(
        self, asked: Asked, *, patience_s: float, passed_on: dict[str, str]
    ) -> dict[str, Any]:
        waits = httpx.Timeout(self._http.timeout)
        waits.read = None  # bounded as a whole: nothing of it comes before all of it does
        try:
            async with (
                asyncio.timeout(patience_s),
                self._sent(asked, waits=waits) as response,
            ):
                _pass_on(response, passed_on)
                content = await _read(response)
        except TimeoutError as error:
            raise TooSlow(patience_s) from error
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InstanceFailed(f"it answered what is no JSON: {shown(content)}") from error
        part = asked.answer_part
        found = body.get(part) if isinstance(body, dict) else None
        if not isinstance(found, list) or not found:
            raise InstanceFailed(f"it answered without {part}: {shown(content)}")
        return {**body}

    def stream(self, asked: Asked, *, passed_on: dict[str, str]) -> AsyncGenerator[Event]:
        return _with_comments(self._events(asked, passed_on), QUIET_S)

    async def _events(self, asked: Asked, passed_on: dict[str, str]) -> AsyncGenerator[Event]:
        reader, open_choices = EventReader(), asked.choices
        async with self._sent(asked, waits=self._http.timeout) as response:
            _pass_on(response, passed_on)
            kind = response.headers.get("content-type", "")
            if not kind.startswith("text/event-stream"):
                content = await _read(response)
                raise InstanceFailed(f"it answered {kind or 'untyped'} content: {shown(content)}")
            try:
                async for piece in response.aiter_bytes():
                    for event in reader.feed(piece):
                        if event.error is not None:
                            raise Errored(f"it failed: {event.error}")
                        open_choices -= event.finished
                        yield event
                        if event.is_done:
                            return
            except Garbage as error:
                raise InstanceFailed(f"it answered garbage: {error}") from error
            except httpx.HTTPError as error:
                raise InstanceFailed(f"its answer broke off: {_words(error)}") from error
        if open_choices > 0 or not reader.is_between_events:
            raise InstanceFailed("its answer ended in the middle")
        yield Event(body=None)

    @asynccontextmanager
    async def _sent(self, asked: Asked, *, waits: httpx.Timeout) -> AsyncIterator[httpx.Response]:
        """The response once its headers are there, if it is an answer."""
        http, address = self._http, self._address
        request = http.build_request(
            "POST",
            f"{address.url}{asked.endpoint}",
            content=asked.body_for(
                address.model, with_usage=address.tells_usage, with_salt=address.takes_cache_salt
            ),
            headers={"Content-Type": "application/json", **_context(), **headers_of(address)},
            timeout=waits,
            extensions=pinned_to(address),
        )
        try:
            response = await http.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(f"it cannot be reached: {_words(error)}") from error
        except httpx.HTTPError as error:
            raise InstanceFailed(f"it does not answer: {_words(error)}") from error
        try:
            if response.status_code in LACKING and not asked.generates:
                raise Lacks(asked.endpoint)
            if not response.is_success:
                kind = response.headers.get("content-type", "")
                raise refusal(
                    response.status_code,
                    await _read(response),
                    media_type=kind if kind and kind.isascii() else "application/json",
                    retry_after_s=_seconds(response.headers.get("retry-after")),
                )
            yield response
        finally:
            await response.aclose()


def _pass_on(response: httpx.Response, passed_on: dict[str, str]) -> None:
    passed_on.clear()  # those of an instance that was asked before
    ignored = response.headers.get(IGNORED_HEADER, "")
    if ignored and len(ignored) <= _MOST_SHOWN and ignored.isascii() and ignored.isprintable():
        passed_on[IGNORED_HEADER] = ignored


def _context() -> dict[str, str]:
    """The request's id and its place in traces."""
    context, told = TRACE.get(), {}
    if REQUEST_ID.get() != NO_REQUEST:
        told[HEADER] = REQUEST_ID.get()
    if context is not None and context.onward:
        told[trace_context.HEADER] = context.onward
    return told


async def _with_comments(stream: AsyncGenerator[Event], quiet_s: float) -> AsyncGenerator[Event]:
    """The same, with a comment whenever nothing came for `quiet_s`."""
    coming: asyncio.Future[Event] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(stream))
            done, _ = await asyncio.wait({coming}, timeout=quiet_s)
            if not done:
                yield COMMENT
                continue
            finished, coming = coming, None
            try:
                event = finished.result()
            except StopAsyncIteration:
                return
            yield event
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        await stream.aclose()


async def _read(response: httpx.Response) -> bytes:
    parts, size = [], 0
    try:
        async for part in response.aiter_bytes():
            size += len(part)
            if size > MOST_ANSWER_BYTES:
                raise InstanceFailed(f"it answered more than {MOST_ANSWER_BYTES} bytes")
            parts.append(part)
    except httpx.HTTPError as error:
        raise InstanceFailed(f"its answer broke off: {_words(error)}") from error
    return b"".join(parts)


def _seconds(text: str | None) -> float | None:
    """At most an hour."""
    return min(float(text), _LONGEST_RETRY_S) if text is not None and text.isdecimal() else None


def _words(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
