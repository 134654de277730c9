"""Turns a live request into OpenAI answers: one whole object, or server-sent events.

The response of a request also ends it: on the last token, on an error, and when the client
disconnects, whether it streams, waits, or had not even been sent a header. Logprobs have two
shapes, of chats and of completions.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.types import Receive, Scope, Send

from runtime.api.client_stream import ClientStream
from runtime.coordinator.live_request import Delta, LiveRequest
from runtime.coordinator.message_reader import PLAIN, MessageForm, MessageReader
from runtime.coordinator.refusals import RequestFailed
from runtime.disconnect import unless_disconnected
from runtime.protocol.openai_answers import (
    IGNORED_HEADER,
    Answer,
    AssistantMessage,
    ChatLogprobs,
    Choice,
    CompletionLogprobs,
    HelixExtension,
    TokenAlternative,
    TokenLogprob,
    Usage,
)
from runtime.protocol.sampled import Logprobs

_NO_CHARACTER = "\ufffd"
TokenText = Callable[[int], str]


def chat_logprobs(deltas: Sequence[Delta], text_of: TokenText) -> ChatLogprobs | None:
    """Of the tokens that have some; None when none was asked for."""
    told = _told(deltas)
    if not told:
        return None
    return ChatLogprobs(
        content=tuple(
            TokenLogprob(
                **_token(delta.token_id, logprobs.token, text_of),
                top_logprobs=tuple(
                    TokenAlternative(**_token(token_id, logprob, text_of))
                    for token_id, logprob in logprobs.most_likely
                ),
            )
            for delta, logprobs in told
        )
    )


def completion_logprobs(
    deltas: Sequence[Delta], text_of: TokenText, *, offset: int
) -> CompletionLogprobs | None:
    """As `chat_logprobs`; the text of the first of `deltas` begins at character `offset`."""
    told = _told(deltas)
    if not told:
        return None
    offsets = []
    for delta in deltas:
        offsets.append(offset)
        offset += len(delta.text)
    return CompletionLogprobs(
        tokens=tuple(text_of(delta.token_id) for delta, _ in told),
        token_logprobs=tuple(logprobs.token for _, logprobs in told),
        top_logprobs=tuple(
            {text_of(token_id): logprob for token_id, logprob in logprobs.most_likely}
            for _, logprobs in told
        ),
        text_offset=tuple(offsets[: len(told)]),
    )


def _told(deltas: Sequence[Delta]) -> list[tuple[Delta, Logprobs]]:
    return [(delta, delta.logprobs) for delta in deltas if delta.logprobs is not None]


def _token(token_id: int, logprob: float, text_of: TokenText) -> dict[str, Any]:
    text = text_of(token_id)
    whole = _NO_CHARACTER not in text
    return {"token": text, "logprob": logprob, "bytes": tuple(text.encode()) if whole else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What is the same in every object of one answer."""

    id: str
    endpoint: Literal["chat", "completion"]
    created: int
    return_token_ids: bool
    include_usage: bool
    message: MessageForm = PLAIN
    ignored: tuple[str, ...] = ()  # what the client gave and nothing depends on

    @property
    def headers(self) -> dict[str, str]:
        """Of the HTTP answer."""
        return {"X-Request-Id": self.id, **self.ignored_header}

    @property
    def ignored_header(self) -> dict[str, str]:
        return {IGNORED_HEADER: ", ".join(self.ignored)} if self.ignored else {}

    def whole(self, requests: Sequence[LiveRequest], deltas: Sequence[list[Delta]]) -> Answer:
        """`deltas` of each request, which is one choice."""
        chat = self.endpoint == "chat"
        choices = []
        for index, (request, told) in enumerate(zip(requests, deltas, strict=True)):
            text = "".join(delta.text for delta in told)
            spoken = self.reader(index)
            message = spoken.whole(text)
            choices.append(
                Choice(
                    index=index,
                    message=message if chat else None,
                    text=None if chat else text,
                    prompt_token_ids=None if chat else self._prompt_of(request),
                    token_ids=tuple(delta.token_id for delta in told)
                    if self.return_token_ids
                    else None,
                    logprobs=self._logprobs(request, told, offset=0),
                    finish_reason=spoken.finish(told[-1].finish_reason),
                    stop_reason=told[-1].stop_string,
                )
            )
        return self._answer(
            requests[0],
            *choices,
            usage=_usage(requests),
            whole=True,
            prompt_token_ids=self._prompt_of(requests[0]) if chat else None,
        )

    def opening(self, requests: Sequence[LiveRequest]) -> Answer:
        """The first chunk of a stream: the assistant's role, and the prompt's ids if asked for."""
        chat = self.endpoint == "chat"
        choices = [
            Choice(
                index=index,
                delta=AssistantMessage(role="assistant", content="") if chat else None,
                text=None if chat else "",
                prompt_token_ids=None if chat else self._prompt_of(request),
            )
            for index, request in enumerate(requests)
        ]
        return self._answer(
            requests[0],
            *choices,
            prompt_token_ids=self._prompt_of(requests[0]) if chat else None,
        )

    def reader(self, choice: int) -> MessageReader:
        """Of the answer of one choice."""
        return MessageReader(self.message, call_ids=f"{self.id.partition('-')[2]}-{choice}")

    def chunk(
        self,
        request: LiveRequest,
        delta: Delta,
        *,
        index: int,
        offset: int,
        spoken: MessageReader,
    ) -> dict[str, Any] | None:
        """The body of a chunk, without an `Answer` between: there is one for each token.

        `offset`: characters of this choice's text before the delta; `spoken` has read them. None
        when there is nothing to tell yet.
        """
        chat, ended = self.endpoint == "chat", delta.finish_reason is not None
        said = spoken.part(delta.text, is_last=ended)
        if said is None and not (ended or delta.logprobs or self.return_token_ids):
            return None
        choice = Choice(
            index=index,
            delta=(said or AssistantMessage()) if chat else None,
            text=None if chat else delta.text,
            token_ids=(delta.token_id,) if self.return_token_ids else None,
            logprobs=self._logprobs(request, [delta], offset=offset),
            finish_reason=spoken.finish(delta.finish_reason),
            stop_reason=delta.stop_string,
        )
        if ended:
            return self._answer(request, choice).as_dict()
        return self._head(request) | {"choices": [choice.as_dict()]}

    def closing(self, requests: Sequence[LiveRequest]) -> Answer:
        """The chunk without choices that carries the usage."""
        return self._answer(requests[0], usage=_usage(requests))

    def _prompt_of(self, request: LiveRequest) -> tuple[int, ...] | None:
        """The prompt's token ids if the client asked for them: vLLM puts those of a chat beside
        its choices, those of a completion into each."""
        return request.prompt_ids if self.return_token_ids else None

    def _logprobs(
        self, request: LiveRequest, deltas: Sequence[Delta], *, offset: int
    ) -> ChatLogprobs | CompletionLogprobs | None:
        text_of = request.serving.tokenizer.token_text
        if self.endpoint == "chat":
            return chat_logprobs(deltas, text_of)
        return completion_logprobs(deltas, text_of, offset=offset)

    def _answer(
        self,
        request: LiveRequest,
        *choices: Choice,
        usage: Usage | None = None,
        whole: bool = False,
        prompt_token_ids: tuple[int, ...] | None = None,
    ) -> Answer:
        ended = any(choice.finish_reason for choice in choices)
        return Answer(
            **self._head(request, whole=whole),
            choices=choices,
            usage=usage,
            prompt_token_ids=prompt_token_ids,
            helix=_helix(request) if ended else None,
        )

    def _head(self, request: LiveRequest, *, whole: bool = False) -> dict[str, Any]:
        """What begins every body."""
        plan, chat = request.serving.plan, "chat.completion" if whole else "chat.completion.chunk"
        return {
            "id": self.id,
            "object": "text_completion" if self.endpoint == "completion" else chat,
            "created": self.created,
            "model": plan.model_name,
            "system_fingerprint": f"helixweb-{plan.deployment_id}-{plan.generation}",
        }


class LiveAnswer:
    """An ASGI response that follows `requests`, one per choice, and always ends them, by `end`."""

    def __init__(
        self,
        *,
        requests: Sequence[LiveRequest],
        form: AnswerForm,
        stream: bool,
        end: Callable[[LiveRequest], None],
    ) -> None:
        self._requests = requests
        self._form = form
        self._stream = stream
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = ClientStream(scope, send)
        keeping = [client.keep_alive(lambda: self._form.headers)] if self._stream else []
        try:
            await unless_disconnected(self._answer(client), receive, *keeping)
        finally:
            self.end()

    def end(self) -> None:
        """Forget its requests; may be called again."""
        for request in self._requests:
            self._end(request)

    @property
    def ignored_header(self) -> dict[str, str]:
        """The header that names what the client gave and nothing depends on."""
        return self._form.ignored_header

    async def whole(self) -> dict[str, Any]:
        """The answer once it is there. Raises RequestFailed."""
        deltas: list[list[Delta]] = [[] for _ in self._requests]
        async for arrived in arriving(self._requests):
            for index, delta in arrived:
                deltas[index].append(delta)
        return self._form.whole(self._requests, deltas).as_dict()

    async def chunks(self) -> AsyncGenerator[list[dict[str, Any]]]:
        """The bodies of the stream's events, as many as there are. Raises RequestFailed."""
        is_open = False
        lengths = [0] * len(self._requests)
        readers = [self._form.reader(choice) for choice in range(len(self._requests))]
        async for arrived in arriving(self._requests):
            bodies = []
            if not is_open:
                # not before a token has come: clients take the first chunk for the first token
                bodies.append(self._form.opening(self._requests).as_dict())
                is_open = True
            for index, delta in arrived:
                chunk = self._form.chunk(
                    self._requests[index],
                    delta,
                    index=index,
                    offset=lengths[index],
                    spoken=readers[index],
                )
                if chunk is not None:
                    bodies.append(chunk)
                lengths[index] += len(delta.text)
            if bodies:
                yield bodies
        if self._form.include_usage:
            yield [self._form.closing(self._requests).as_dict()]

    async def _answer(self, client: ClientStream) -> None:
        headers = self._form.headers
        try:
            if not self._stream:
                await client.respond(await self.whole(), headers)
                return
            await client.open(headers)
            async for bodies in self.chunks():
                await client.send(bodies)
            await client.send([], is_last=True)
        except RequestFailed as failure:
            await client.fail(failure, headers)


async def arriving(requests: Sequence[LiveRequest]) -> AsyncGenerator[list[tuple[int, Delta]]]:
    """The deltas of all requests as they come, each with the index of its request.

    Raises RequestFailed.
    """
    news = asyncio.Event()
    for request in requests:
        request.news = news
    going = dict(enumerate(requests))
    while going:
        news.clear()
        arrived = [(index, delta) for index, each in going.items() for delta in each.take()]
        for index, delta in arrived:
            if delta.finish_reason is not None:
                del going[index]
        if arrived:
            yield arrived
        else:
            await news.wait()


def _usage(requests: Sequence[LiveRequest]) -> Usage:
    """The prompt counts once, however many choices it has."""
    prompt = len(requests[0].prompt_ids)
    completion = sum(len(request.token_ids) for request in requests)
    return Usage(
        prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
    )


def _helix(request: LiveRequest) -> HelixExtension:
    return HelixExtension(
        request=f"{request.id:016x}",
        pipeline=request.stages,
        ttft_s=request.ttft_s,
        queue_s=request.queue_s,
    )
