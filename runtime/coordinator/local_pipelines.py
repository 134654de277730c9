"""This process's own pipelines as one more target beside instances, without HTTP between."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from runtime.api.events import Event
from runtime.coordinator.answering import LiveAnswer
from runtime.coordinator.app import TAKING, PipelineBackend
from runtime.coordinator.refusals import RequestFailed
from runtime.front.asked import Asked
from runtime.front.target import Errored, Lacks, TooSlow, refusal
from runtime.instances.engine_load import EngineLoad
from runtime.protocol.openai import ApiError


class LocalPipelines:
    """The pipelines of this process as a target beside instances; the proxy calls it.

    Answers what the router of instances sends to `backend`.
    """

    def __init__(self, backend: PipelineBackend) -> None:
        self._backend = backend

    async def trouble(self) -> str:
        """What an instance is asked over HTTP."""
        status = self._backend.status
        return "" if status in TAKING else status

    async def load(self) -> EngineLoad:
        """Nothing: they count their KV cache themselves."""
        return EngineLoad()

    async def whole(
        self, asked: Asked, *, patience_s: float, passed_on: dict[str, str]
    ) -> dict[str, Any]:
        if asked.endpoint == "/v1/embeddings":
            raise Lacks(asked.endpoint)
        try:
            if asked.endpoint == "/tokenize":
                return await self._backend.tokens_of(_body(asked))
            answer = await self._begin(asked, passed_on)
            try:
                async with asyncio.timeout(patience_s):
                    return await answer.whole()
            finally:
                answer.end()
        except TimeoutError as error:
            raise TooSlow(patience_s) from error
        except ApiError as error:
            raise _meaning(error) from error

    async def stream(self, asked: Asked, *, passed_on: dict[str, str]) -> AsyncGenerator[Event]:
        try:
            answer = await self._begin(asked, passed_on)
        except ApiError as error:
            raise _meaning(error) from error
        try:
            async with aclosing(answer.chunks()) as chunks:
                async for bodies in chunks:
                    for body in bodies:
                        yield Event(body=body)
        except RequestFailed as failure:
            raise Errored(f"it failed: {failure}") from failure
        finally:
            answer.end()
        yield Event(body=None)

    async def _begin(self, asked: Asked, passed_on: dict[str, str]) -> LiveAnswer:
        answer = await self._backend.begin(asked.endpoint, _body(asked), owner=asked.asker)
        passed_on.clear()  # those of an instance that was asked before
        passed_on.update(answer.ignored_header)
        return answer


def _body(asked: Asked) -> bytes:
    return asked.body_for(str(asked.body["model"]), with_usage=True, with_salt=False)


def _meaning(error: ApiError) -> Exception:
    content = json.dumps(error.body()).encode()
    return refusal(error.status, content, retry_after_s=error.retry_after_s)
