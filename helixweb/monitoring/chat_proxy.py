"""Carries a chat from the browser to a coordinator and streams the answer back.

The browser holds a session here, not an API key; the coordinator judges the request, and what it
refuses comes back as it said it. Closing the stream closes the coordinator's and ends the request.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
from django.utils.translation import gettext as _

from helixweb.monitoring.endpoints import Endpoint
from runtime.protocol import trace_context
from runtime.protocol.logs import HEADER, REQUEST_ID

# Between two tokens a request may wait in the coordinator's queue; the stream itself has no end.
TIMEOUT = httpx.Timeout(10.0, connect=5.0, read=300.0)
PASSED_HEADERS = ("Retry-After", "X-Request-Id")
EVENT_STREAM = "text/event-stream"
JSON = "application/json"
LONGEST_REFUSAL = 64_000


class InvalidChat(Exception):
    """The browser's request cannot be read; `param` names the part that is wrong."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """`body` is an OpenAI chat request but for its model."""

    deployment_id: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the browser gets: a stream of events, or an OpenAI error object as a whole."""

    status: int
    headers: Mapping[str, str]
    content: AsyncIterator[bytes] | bytes


def read_chat(text: bytes) -> ChatRequest:
    """Raises InvalidChat. Everything but `deployment` is left to the coordinator to judge."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidChat(_("The request is not JSON: %(error)s.") % {"error": error}) from error
    if not isinstance(body, dict):
        raise InvalidChat(_("The request is not a JSON object."))
    deployment_id = body.pop("deployment", None)
    if not isinstance(deployment_id, int) or isinstance(deployment_id, bool):
        raise InvalidChat(
            _("deployment is %(deployment_id)s; give the number of a deployment.")
            % {"deployment_id": json.dumps(deployment_id)[:80]},
            param="deployment",
        )
    return ChatRequest(deployment_id=deployment_id, body=body)


async def open_chat(
    endpoint: Endpoint, chat: ChatRequest, *, traceparent: str | None = None
) -> Answer:
    """Send the request; returns once the coordinator has begun to answer. `traceparent` is passed
    on.

    Raises httpx.HTTPError when it cannot be reached.
    """
    request_body = {
        **chat.body,
        "model": endpoint.model_name,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(timeout=TIMEOUT, trust_env=False)
        )
        answer = await stack.enter_async_context(
            client.stream(
                "POST",
                f"{endpoint.base_url}/chat/completions",
                content=json.dumps(request_body).encode(),
                headers={
                    "Authorization": f"Bearer {endpoint.key}",
                    "Content-Type": "application/json",
                    "Accept-Encoding": "identity",
                    HEADER: REQUEST_ID.get(),
                    **({trace_context.HEADER: traceparent} if traceparent else {}),
                },
            )
        )
        headers = {name: answer.headers[name] for name in PASSED_HEADERS if name in answer.headers}
        if answer.status_code == 200 and _is(answer, EVENT_STREAM) and _is_plain(answer):
            headers["Content-Type"] = EVENT_STREAM
            relayed = _relay(answer, stack.pop_all())
            return Answer(status=200, headers=headers, content=relayed)
        refusal = await _refusal(answer)
    if refusal is None:
        return Answer(
            status=502,
            headers={"Content-Type": JSON},
            content=json.dumps(no_coordinator(endpoint, answer.status_code)).encode(),
        )
    return Answer(
        status=answer.status_code, headers={**headers, "Content-Type": JSON}, content=refusal
    )


def _is(answer: httpx.Response, media_type: str) -> bool:
    return str(answer.headers.get("Content-Type", "")).split(";")[0].strip() == media_type


def _is_plain(answer: httpx.Response) -> bool:
    """Coordinators compress nothing; what unfolds could become any length."""
    return str(answer.headers.get("Content-Encoding", "identity")).strip().lower() == "identity"


async def _refusal(answer: httpx.Response) -> bytes | None:
    """The OpenAI error object it is; None for anything else, which no page of ours shall show."""
    if answer.status_code < 400 or not _is(answer, JSON) or not _is_plain(answer):
        return None
    content = b""
    async for chunk in answer.aiter_raw():
        content += chunk
        if len(content) > LONGEST_REFUSAL:
            return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(document, dict) and "error" in document else None


async def _relay(answer: httpx.Response, closing: AsyncExitStack) -> AsyncIterator[bytes]:
    async with closing:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        except httpx.HTTPError as error:
            yield b"data: " + json.dumps(broken_off(error)).encode() + b"\n\n"


def unreachable(endpoint: Endpoint, error: httpx.HTTPError) -> dict[str, Any]:
    """An OpenAI error object for a coordinator that does not answer."""
    return error_object(
        _(
            "The coordinator at %(base_url)s does not answer (%(name)s); start it "
            "again, or correct the address it was started with."
        )
        % {"base_url": endpoint.base_url, "name": type(error).__name__},
        code="coordinator_unreachable",
        type_="server_error",
    )


def no_coordinator(endpoint: Endpoint, status: int) -> dict[str, Any]:
    """An OpenAI error object for a server that does not speak as a coordinator does."""
    return error_object(
        _(
            "What answers at %(base_url)s (%(status)s) is no coordinator; correct "
            "the address it was started with."
        )
        % {"base_url": endpoint.base_url, "status": status},
        code="no_coordinator",
        type_="server_error",
    )


def broken_off(error: httpx.HTTPError) -> dict[str, Any]:
    """The last event of a stream that the coordinator did not end."""
    return error_object(
        _(
            "The coordinator broke off in the middle of the answer (%(name)s); look "
            "at its log, and ask again."
        )
        % {"name": type(error).__name__},
        code="coordinator_lost",
        type_="server_error",
    )


def error_object(
    message: str, *, code: str, type_: str = "invalid_request_error", param: str | None = None
) -> dict[str, Any]:
    """As OpenAI writes errors, so that the page reads one kind."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
