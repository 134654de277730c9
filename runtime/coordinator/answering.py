"""Turns a live request into OpenAI answers: one whole object, or server-sent events.

Whoever answers a request also ends it: on the last token, on an error, and when the client hangs
up, whether it streams, waits, or had not even been sent a header.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from runtime.coordinator.live_request import Delta, LiveRequest, RequestFailed
from runtime.protocol.openai import ApiError
from runtime.protocol.openai_answers import (
    Answer,
    AssistantMessage,
    Choice,
    HelixExtension,
    PipelineHop,
    Usage,
)

_INTERNAL = frozenset({"not_a_number", "stage_error", "token_stream_broken"})
_RETRY_AFTER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What is the same in every object of one answer."""

    id: str
    endpoint: Literal["chat", "completion"]
    created: int
    return_token_ids: bool
    include_usage: bool

    def whole(self, request: LiveRequest, deltas: list[Delta]) -> Answer:
        text = "".join(delta.text for delta in deltas)
        chat = self.endpoint == "chat"
        choice = Choice(
            message=AssistantMessage(role="assistant", content=text) if chat else None,
            text=None if chat else text,
            token_ids=tuple(delta.token_id for delta in deltas) if self.return_token_ids else None,
            finish_reason=deltas[-1].finish_reason,
        )
        return self._answer(request, choice, usage=_usage(request), whole=True, opening=True)

    def opening(self, request: LiveRequest) -> Answer:
        """The first chunk: it says that the assistant speaks, and what it was asked."""
        chat = self.endpoint == "chat"
        choice = Choice(
            delta=AssistantMessage(role="assistant", content="") if chat else None,
            text=None if chat else "",
        )
        return self._answer(request, choice, opening=True)

    def chunk(self, request: LiveRequest, delta: Delta) -> Answer:
        chat = self.endpoint == "chat"
        choice = Choice(
            delta=AssistantMessage(content=delta.text or None) if chat else None,
            text=None if chat else delta.text,
            token_ids=(delta.token_id,) if self.return_token_ids else None,
            finish_reason=delta.finish_reason,
        )
        return self._answer(request, choice)

    def closing(self, request: LiveRequest) -> Answer:
        """The chunk without choices that carries the usage."""
        return self._answer(request, usage=_usage(request))

    def _answer(
        self,
        request: LiveRequest,
        *choices: Choice,
        usage: Usage | None = None,
        whole: bool = False,
        opening: bool = False,
    ) -> Answer:
        plan = request.serving.plan
        ended = any(choice.finish_reason for choice in choices)
        return Answer(
            id=self.id,
            object="text_completion"
            if self.endpoint == "completion"
            else "chat.completion"
            if whole
            else "chat.completion.chunk",
            created=self.created,
            model=plan.model_name,
            system_fingerprint=f"helixweb-{plan.deployment_id}-{plan.generation}",
            choices=choices,
            usage=usage,
            prompt_token_ids=request.prompt_ids if opening and self.return_token_ids else None,
            helix=_helix(request) if ended else None,
        )


class LiveAnswer:
    """An ASGI response that follows `request` and always ends it, by `end`."""

    def __init__(
        self,
        *,
        request: LiveRequest,
        form: AnswerForm,
        stream: bool,
        end: Callable[[LiveRequest], None],
    ) -> None:
        self._request = request
        self._form = form
        self._stream = stream
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answering = self._send_stream(send) if self._stream else self._send_whole(scope, send)
            await _unless_disconnected(answering, receive)
        finally:
            self._end(self._request)

    async def _send_whole(self, scope: Scope, send: Send) -> None:
        headers = {"X-Request-Id": self._form.id}
        try:
            deltas = [delta async for delta in self._request.deltas()]
        except RequestFailed as failure:
            error = failed(failure)
            response = JSONResponse(
                error.body(), status_code=error.status, headers=headers | retry_header(error)
            )
        else:
            answer = self._form.whole(self._request, deltas)
            response = JSONResponse(answer.as_dict(), headers=headers)
        await response(scope, _no_more, send)

    async def _send_stream(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"text/event-stream; charset=utf-8"),
                    (b"cache-control", b"no-cache"),
                    (b"x-accel-buffering", b"no"),
                    (b"x-request-id", self._form.id.encode()),
                ],
            }
        )
        async for data in self._events():
            event = f"data: {data}\n\n".encode()
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[str]:
        yield _compact(self._form.opening(self._request).as_dict())
        try:
            async for delta in self._request.deltas():
                if delta.text or delta.finish_reason or self._form.return_token_ids:
                    yield _compact(self._form.chunk(self._request, delta).as_dict())
        except RequestFailed as failure:
            yield _compact(failed(failure).body())
        else:
            if self._form.include_usage:
                yield _compact(self._form.closing(self._request).as_dict())
        yield "[DONE]"


def failed(failure: RequestFailed) -> ApiError:
    """The error object of a request that was accepted and then failed."""
    internal = failure.code in _INTERNAL
    return ApiError(
        status=500 if internal else 503,
        message=str(failure),
        code=failure.code,
        type_="server_error",
        retry_after_s=None if internal else _RETRY_AFTER_S,
    )


def retry_header(error: ApiError) -> dict[str, str]:
    if error.retry_after_s is None:
        return {}
    return {"Retry-After": str(max(1, round(error.retry_after_s)))}


async def _unless_disconnected(answering: Awaitable[None], receive: Receive) -> None:
    """Run `answering` to its end, or cancel it when the client hangs up."""

    async def hang_up() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(answering), asyncio.ensure_future(hang_up())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(outcomes[0], Exception) and not isinstance(outcomes[0], OSError):
        raise outcomes[0]  # an OSError is the client's side of the connection going away


async def _no_more() -> dict[str, Any]:
    """A `receive` for a response that reads nothing; the body was read before."""
    return {"type": "http.disconnect"}


def _usage(request: LiveRequest) -> Usage:
    prompt, completion = len(request.prompt_ids), len(request.token_ids)
    return Usage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


def _helix(request: LiveRequest) -> HelixExtension:
    stages = request.pipeline.stages if request.pipeline else ()
    return HelixExtension(
        pipeline=tuple(
            PipelineHop(node=stage.node, first=stage.first, end=stage.end) for stage in stages
        ),
        ttft_s=request.ttft_s,
        queue_s=request.queue_s,
    )


def _compact(body: dict[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
