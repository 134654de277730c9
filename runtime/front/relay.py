"""One request through one instance: what it answers, or why that counts as no answer."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from runtime.api.events import Event, EventReader, Garbage
from runtime.front.asked import Asked
from runtime.instances.asking import headers_of
from runtime.instances.command_lines import Door
from runtime.instances.pinned import instance_client, pinned_to
from runtime.protocol import trace_context
from runtime.protocol.logs import HEADER, NO_REQUEST, REQUEST_ID
from runtime.protocol.openai_answers import IGNORED_HEADER
from runtime.protocol.trace_context import TRACE

MOST_ANSWER_BYTES = 64 << 20
_OURS = frozenset({401, 403, 404, 405})  # the client was let in and its model is right: our fault
_MOST_SHOWN = 200
_CONTEXT_WORDS = re.compile(r"(?i)maximum (?:context|model) length|max_model_len")
_CONNECT_TIMEOUT_S = 5.0
_KEEP_IDLE_S = 2.0
_LONGEST_RETRY_S = 3600.0


class InstanceFailed(Exception):
    """The instance did not answer as it should; another may."""


class Unreachable(InstanceFailed):
    """The request never arrived there, so that it cannot be what the instance fails of."""


class Errored(InstanceFailed):
    """It says that it failed of this request, which may be the request's fault."""


class TooSlow(Exception):
    """The whole answer did not come in time; elsewhere it would take as long."""


class InstanceFull(Exception):
    """The instance takes no more now; another may. `retry_after_s` is what it said, if it did."""

    def __init__(self, message: str, *, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Refused(Exception):
    """The request itself is wrong, and would be anywhere; `content` is the instance's answer."""

    def __init__(self, *, status: int, content: bytes, media_type: str) -> None:
        super().__init__(f"refused with {status}")
        self.status = status
        self.content = content
        self.media_type = media_type


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


class TooLong(Refused):
    """It does not fit the context of this instance; another's may be larger."""


async def whole_answer(
    http: httpx.AsyncClient,
    door: Door,
    asked: Asked,
    *,
    patience_s: float,
    passed_on: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The answer of one that does not stream, of which nothing comes before all of it does.

    `passed_on` becomes the headers that the client gets, too. Raises InstanceFailed,
    InstanceFull, Refused (TooLong), TooSlow.
    """
    waits = httpx.Timeout(http.timeout)
    waits.read = None  # bounded as a whole
    try:
        async with (
            asyncio.timeout(patience_s),
            _sent(http, door, asked, waits=waits) as response,
        ):
            _pass_on(response, passed_on)
            content = await _read(response)
    except TimeoutError as error:
        raise TooSlow(f"no answer within {patience_s:g} s; ask for fewer tokens") from error
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InstanceFailed(f"it answered what is no JSON: {_shown(content)}") from error
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices:
        raise InstanceFailed(f"it answered without choices: {_shown(content)}")
    return {**body}


async def stream_events(
    http: httpx.AsyncClient,
    door: Door,
    asked: Asked,
    *,
    passed_on: dict[str, str] | None = None,
) -> AsyncGenerator[Event]:
    """Events as they come, the last is the end of the stream.

    `passed_on` becomes the headers that the client gets, too. Raises InstanceFailed,
    InstanceFull, Refused (TooLong).
    """
    reader, open_choices = EventReader(), asked.choices
    async with _sent(http, door, asked, waits=http.timeout) as response:
        _pass_on(response, passed_on)
        kind = response.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            content = await _read(response)
            raise InstanceFailed(f"it answered {kind or 'untyped'} content: {_shown(content)}")
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


def _pass_on(response: httpx.Response, passed_on: dict[str, str] | None) -> None:
    if passed_on is None:
        return
    passed_on.clear()  # those of an instance that was asked before
    ignored = response.headers.get(IGNORED_HEADER, "")
    if ignored and len(ignored) <= _MOST_SHOWN and ignored.isascii() and ignored.isprintable():
        passed_on[IGNORED_HEADER] = ignored


def _tells_of_context(content: bytes) -> bool:
    """Our code for it, which is OpenAI's, or vLLM's words."""
    try:
        error = json.loads(content)["error"]
        code, message = error.get("code"), str(error.get("message"))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False
    return code == "context_length_exceeded" or _CONTEXT_WORDS.search(message) is not None


@asynccontextmanager
async def _sent(
    http: httpx.AsyncClient, door: Door, asked: Asked, *, waits: httpx.Timeout
) -> AsyncIterator[httpx.Response]:
    """The response once its headers are there, if it is an answer."""
    request = http.build_request(
        "POST",
        f"{door.url}{asked.endpoint}",
        content=asked.body_for(
            door.model, with_usage=door.tells_usage, with_salt=door.takes_cache_salt
        ),
        headers={"Content-Type": "application/json", **_headers(door, asked)},
        timeout=waits,
        extensions=pinned_to(door),
    )
    try:
        response = await http.send(request, stream=True)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable(f"it cannot be reached: {_words(error)}") from error
    except httpx.HTTPError as error:
        raise InstanceFailed(f"it does not answer: {_words(error)}") from error
    try:
        if not response.is_success:
            raise _refusal(response, await _read(response))
        yield response
    finally:
        await response.aclose()


def _headers(door: Door, asked: Asked) -> dict[str, str]:
    """Also the request's id and its place in traces; our own pipelines tell of it themselves."""
    context, told = TRACE.get(), {}
    if REQUEST_ID.get() != NO_REQUEST:
        told[HEADER] = REQUEST_ID.get()
    if context is not None and (parent := context.came if door.hears_asker else context.onward):
        told[trace_context.HEADER] = parent
    if door.hears_asker:
        return {"Authorization": f"Bearer {door.api_key}.{asked.asker}", **told}
    return {**headers_of(door), **told}


def _refusal(response: httpx.Response, content: bytes) -> Exception:
    status = response.status_code
    said = f"it answered {status}: {_shown(content)}"
    if status == 429:
        return InstanceFull(said, retry_after_s=_seconds(response.headers.get("retry-after")))
    if 400 <= status < 500 and status not in _OURS:
        kind = response.headers.get("content-type", "")
        kind = kind if kind and kind.isascii() else "application/json"
        refused = TooLong if status == 400 and _tells_of_context(content) else Refused
        return refused(status=status, content=content, media_type=kind)
    return Errored(said)


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
    """At most an hour, whatever it says."""
    return min(float(text), _LONGEST_RETRY_S) if text is not None and text.isdecimal() else None


def _shown(content: bytes) -> str:
    return " ".join(content[:_MOST_SHOWN].decode(errors="replace").split()) or "nothing"


def _words(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__
