"""Pipelines of stages as the backend of the OpenAI application.

/openapi.json says what each endpoint takes and answers.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from runtime.api.client_stream import WholeAnswer
from runtime.coordinator.answering import AnswerForm, LiveAnswer
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.message_reader import PLAIN, MessageForm
from runtime.coordinator.openapi import openapi_document
from runtime.coordinator.sampling import output_limit, sampling_of, seed_of_choice
from runtime.coordinator.schema_check import SchemaCheck
from runtime.coordinator.serving import Serving
from runtime.coordinator.tokenizer import TokenizerError
from runtime.coordinator.tool_calls import ToolDialect
from runtime.openai_app import Endpoint
from runtime.protocol.openai import ApiError, model_not_found, parse_body, parse_request
from runtime.protocol.openai_parameters import (
    ChatCompletionRequest,
    ChatMessage,
    CompletionRequest,
    GenerationRequest,
    TokenizeRequest,
)
from runtime.protocol.openai_tools import Tool

TAKING = frozenset({"ok", "paused"})  # states in which requests are taken
COMPLETION_DEFAULT_TOKENS = 16  # as OpenAI's /v1/completions; a chat may fill the context

RequestT = TypeVar("RequestT", bound=GenerationRequest)


class PipelineBackend:
    """The endpoints of this process's pipelines; the OpenAI application calls it.

    Answers by the pipelines of `dispatcher`.

    `new_seed` gives sampling seeds (64 bits) to requests that bring none.
    """

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        unix_time: Callable[[], float] = time.time,
        new_answer_id: Callable[[], str] = lambda: secrets.token_hex(12),
        new_seed: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:
        self._dispatcher = dispatcher
        self._unix_time = unix_time
        self._new_answer_id = new_answer_id
        self._new_seed = new_seed
        self._schemas = SchemaCheck()
        # A text may take 200 times its size while it is encoded, and each thread keeps some of it.
        self._encoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="encoder")

    async def answer(self, endpoint: Endpoint, body: bytes, *, owner: str) -> ASGIApp:
        if endpoint == "/tokenize":
            return WholeAnswer(await self.tokens_of(body))
        return await self.begin(endpoint, body, owner=owner)

    async def begin(self, endpoint: Endpoint, body: bytes, *, owner: str) -> LiveAnswer:
        """Submit a request of the key with that hash. Raises ApiError."""
        if endpoint == "/v1/chat/completions":
            return await self._begin_chat(body, owner=owner)
        if endpoint == "/v1/completions":
            return await self._begin_completion(body, owner=owner)
        raise ApiError(  # their last stage computes tokens
            message="pipelines of stages compute no embeddings; deploy an embedding model as whole "
            "instances of an engine that has /v1/embeddings, such as vLLM",
            code="no_such_endpoint",
        )

    async def _begin_chat(self, body: bytes, *, owner: str) -> LiveAnswer:
        request, serving = await self._accept(body, ChatCompletionRequest)
        dialect = _dialect(request, serving)
        prompt_ids = await self._encoded_chat(
            serving,
            request.messages,
            tools=request.usable_tools,
            forced=bool(request.forced_call),
            variables=request.template_variables,
        )
        limit = output_limit(
            request, serving, prompt_tokens=len(prompt_ids), default_tokens=None, param="messages"
        )
        return self._answer(
            request,
            serving,
            prompt_ids,
            owner=owner,
            max_tokens=limit,
            endpoint_id="chatcmpl",
            message=MessageForm(
                dialect=dialect,
                tools=request.usable_tools,
                thoughts=None if request.grammar else serving.tokenizer.thoughts_after(prompt_ids),
                most_calls=1 if request.parallel_tool_calls is False else None,
                tells_thoughts=request.include_reasoning,
            ),
            unused=request.template_variables.keys() - serving.tokenizer.template_variables,
        )

    async def _begin_completion(self, body: bytes, *, owner: str) -> LiveAnswer:
        request, serving = await self._accept(body, CompletionRequest)
        prompt = request.single_prompt
        if isinstance(prompt, str):
            prompt_ids = await self._encoded(lambda: serving.tokenizer.encode_text(prompt))
        else:
            prompt_ids = prompt
            largest = max(prompt_ids)
            if largest >= serving.tokenizer.vocabulary_size:
                raise ApiError(
                    message=f"token id {largest} is not in the vocabulary of this model; ids run "
                    f"from 0 to {serving.tokenizer.vocabulary_size - 1}",
                    param="prompt",
                    code="invalid_value",
                )
        limit = output_limit(
            request,
            serving,
            prompt_tokens=len(prompt_ids),
            default_tokens=COMPLETION_DEFAULT_TOKENS,
            param="prompt",
        )
        return self._answer(
            request,
            serving,
            prompt_ids,
            owner=owner,
            max_tokens=limit,
            endpoint_id="cmpl",
        )

    async def tokens_of(self, content: bytes) -> dict[str, Any]:
        """The token ids of a chat or a text, as vLLM's /tokenize gives them. Raises ApiError."""
        request = parse_body(TokenizeRequest, content)
        if (request.messages is None) == (request.prompt is None):
            raise ApiError(
                message="give either 'messages' or 'prompt'", param="messages", code="invalid_value"
            )
        serving = self._serving_of(request.model)
        if request.messages is not None:
            token_ids = await self._encoded_chat(
                serving,
                request.messages,
                tools=request.tools or (),
                variables=request.chat_template_kwargs or {},
            )
        else:
            text = request.prompt or ""
            token_ids = await self._encoded(lambda: serving.tokenizer.encode_text(text))
        return {
            "count": len(token_ids),
            "max_model_len": serving.plan.max_context_tokens,
            "tokens": token_ids,
        }

    def model(self) -> dict[str, object] | None:
        serving = self._dispatcher.serving
        if serving is None:
            return None
        return {
            "id": serving.plan.model_name,
            "max_model_len": serving.plan.max_context_tokens,
            "emulated": serving.plan.emulated,
        }

    def health(self, http: Request) -> Response:
        """200 when requests are answered, else 503; the body says what is missing.

        "paused": they are taken, and wait. "stopping": those that are here end, new ones must ask
        elsewhere. `draining_nodes` are to be left free.

        `coming_generation` will take over from the one that serves, requests of
        `leaving_generation` still end, or its layers are being dropped; 0: there is none.
        `silent_nodes` answer no heartbeats, or have not reported; requests go around them. Of those
        whose loss was noticed `lost_nodes` says how.
        """
        plans = self._dispatcher.plans
        serving, coming = plans.serving, plans.coming
        missing = () if serving is None else serving.missing_nodes()
        body = {
            "status": (status := self.status),
            "generation": 0 if serving is None else serving.generation,
            "coming_generation": 0 if coming is None else coming.generation,
            "leaving_generation": plans.leaving_generation or 0,
            "missing_nodes": list(missing),
            "silent_nodes": self._dispatcher.silent_nodes(),
            "lost_nodes": {} if serving is None else serving.losses(),
            "draining_nodes": sorted(self._dispatcher.draining.progress()),
            "requests_running": self._dispatcher.requests_running,
            "requests_waiting": self._dispatcher.requests_waiting,
        }
        return JSONResponse(body, status_code=200 if status in TAKING else 503)

    @property
    def status(self) -> str:
        """In a word; requests are taken while it is "ok" or "paused"."""
        if self._dispatcher.plans.is_closed:
            return "stopping"
        serving = self._dispatcher.serving
        if serving is None:
            return "no plan"
        if serving.missing_nodes():
            return "waiting for stages"
        return "paused" if self._dispatcher.is_paused else "ok"

    @property
    def routes(self) -> list[Route]:
        """Those of the application that only pipelines have."""
        return [Route("/openapi.json", self.openapi, methods=["GET"])]

    async def openapi(self, http: Request) -> Response:
        return JSONResponse(openapi_document())

    async def _encoded(self, encode: Callable[[], list[int]]) -> list[int]:
        return await asyncio.get_running_loop().run_in_executor(self._encoders, encode)

    async def _encoded_chat(
        self,
        serving: Serving,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool],
        forced: bool = False,
        variables: Mapping[str, Any],
    ) -> list[int]:
        try:
            return await self._encoded(
                lambda: serving.tokenizer.encode_chat(
                    messages, tools=tools, forced=forced, variables=variables
                )
            )
        except TokenizerError as error:
            raise ApiError(message=str(error), param="messages", code="invalid_value") from error

    async def _accept(self, body: bytes, kind: type[RequestT]) -> tuple[RequestT, Serving]:
        """The request and the plan that is to answer it, which must be of that model."""
        request = parse_request(kind, body)
        serving = self._serving_of(request.model)
        if request.grammar:
            await self._schemas.check(request.grammar, param=request.grammar_param)
        return request, serving

    def _serving_of(self, model: str) -> Serving:
        """The plan that serves, which must be of that model. Raises ApiError."""
        serving = self._dispatcher.plans.open()
        if model != serving.plan.model_name:
            raise model_not_found(model, available=serving.plan.model_name)
        return serving

    def _answer(
        self,
        request: GenerationRequest,
        serving: Serving,
        prompt_ids: list[int],
        *,
        owner: str,
        max_tokens: int,
        endpoint_id: str,
        message: MessageForm = PLAIN,
        unused: Collection[str] = (),
    ) -> LiveAnswer:
        """`unused`: variables that the client gave and the chat template does not read."""
        seed = self._new_seed() if request.seed is None else request.seed
        sampling = sampling_of(request, serving, max_tokens=max_tokens, seed=seed)
        requests: list[LiveRequest] = []
        try:
            for choice in range(request.n or 1):
                requests.append(  # noqa: PERF401 - those before a refusal must be ended
                    self._dispatcher.submit(
                        serving,
                        prompt_ids=prompt_ids,
                        sampling=replace(sampling, seed=seed_of_choice(sampling.seed, choice)),
                        stop_strings=request.stop_strings,
                        owner=owner,
                        cache_salt=request.cache_salt or "",
                        priority=request.priority,
                        shows_markers=message.has_markers,
                    )
                )
        except ApiError:
            for accepted in requests:
                self._dispatcher.end(accepted)
            raise
        form = AnswerForm(
            id=f"{endpoint_id}-{self._new_answer_id()}",
            endpoint="chat" if endpoint_id == "chatcmpl" else "completion",
            created=int(self._unix_time()),
            return_token_ids=request.return_token_ids,
            message=message,
            ignored=tuple(sorted(request.ignored | _ignored_variables(request, unused))),
            include_usage=bool(request.stream_options and request.stream_options.include_usage),
        )
        return LiveAnswer(
            requests=requests, form=form, stream=bool(request.stream), end=self._dispatcher.end
        )


def _ignored_variables(request: GenerationRequest, unused: Collection[str]) -> set[str]:
    """The parameters whose variables are all `unused` by the chat template."""
    if not isinstance(request, ChatCompletionRequest):
        return set()
    ignored = set()
    given = request.chat_template_kwargs or {}
    if given and given.keys() <= set(unused):
        ignored.add("chat_template_kwargs")
    if request.reasoning_effort is not None and "reasoning_effort" in unused:
        ignored.add("reasoning_effort")
    return ignored


def _dialect(request: ChatCompletionRequest, serving: Serving) -> ToolDialect | None:
    """How calls of tools stand in the answer; None when there are none to look for.

    Raises ApiError 400 when the model knows no tools.
    """
    if not request.usable_tools:
        has_channels = serving.tokenizer.has_channels and not request.grammar
        return ToolDialect.HARMONY if has_channels else None
    try:
        dialect = serving.tokenizer.tool_dialect
    except TokenizerError as error:
        raise ApiError(message=str(error), param="tools", code="unsupported_value") from error
    return ToolDialect.BARE if request.forced_call else dialect
