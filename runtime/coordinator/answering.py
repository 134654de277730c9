"""Turns a live request into OpenAI answers: one whole object, or server-sent events.

The response of a request also ends it: on the last token, on an error, and when the client
disconnects, whether it streams, waits, or had not even been sent a header. Logprobs have two
shapes, of chats and of completions.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.types import Receive, Scope, Send

from runtime.api.client_stream import ClientStream
from runtime.api.translation import Json
from runtime.coordinator.live_request import Delta, LiveRequest
from runtime.coordinator.message_reader import PLAIN, MessageForm, MessageReader
from runtime.coordinator.refusals import RequestFailed
from runtime.disconnect import unless_disconnected
from runtime.protocol.openai_answers import (
    IGNORED_HEADER,
    Answer,
    AnswerKind,
    AssistantMessage,
    ChatLogprobs,
    Choice,
    CompletionLogprobs,
    HelixExtension,
    TokenAlternative,
    Usage,
)
from runtime.protocol.sampled import Logprobs

_NO_CHARACTER = "\ufffd"
TokenText = Callable[[int], str]


def chat_logprobs(deltas: Sequence[Delta], text_of: TokenText) -> ChatLogprobs | None:
    """Of the tokens that have some; None when none was asked for."""
    known = _with_logprobs(deltas)
    if not known:
        return None
    return {
        "content": [
            {
                **_token(delta.token_id, logprobs.token, text_of),
                "top_logprobs": [_token(*each, text_of) for each in logprobs.most_likely],
            }
            for delta, logprobs in known
        ]
    }


def completion_logprobs(
    deltas: Sequence[Delta], text_of: TokenText, *, offset: int
) -> CompletionLogprobs | None:
    """As `chat_logprobs`; the text of the first of `deltas` begins at character `offset`."""
    known = _with_logprobs(deltas)
    if not known:
        return None
    offsets = []
    for delta in deltas:
        offsets.append(offset)
        offset += len(delta.text)
    return {
        "tokens": [text_of(delta.token_id) for delta, _ in known],
        "token_logprobs": [logprobs.token for _, logprobs in known],
        "top_logprobs": [
            {text_of(token_id): logprob for token_id, logprob in logprobs.most_likely}
            for _, logprobs in known
        ],
        "text_offset": offsets[: len(known)],
    }


def _with_logprobs(deltas: Sequence[Delta]) -> list[tuple[Delta, Logprobs]]:
    return [(delta, delta.logprobs) for delta in deltas if delta.logprobs is not None]


def _token(token_id: int, logprob: float, text_of: TokenText) -> TokenAlternative:
    text = text_of(token_id)
    whole = _NO_CHARACTER not in text
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()) if whole else None}


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

    def whole(self, requests: Sequence[LiveRequest], deltas: Sequence[list[Delta]]) -> Json:
        """`deltas` of each request, which is one choice."""
        choices = []
        for index, (request, of_choice) in enumerate(zip(requests, deltas, strict=True)):
            text = "".join(delta.text for delta in of_choice)
            spoken = self.reader(index)
            choice: Choice = {"index": index, "finish_reason": None}
            if self.endpoint == "chat":
                choice["message"] = spoken.whole(text)
            else:
                choice["text"] = spoken.whole(text).get("content", "")
            choices.append(self._with_tokens(choice, request, of_choice, offset=0, spoken=spoken))
        return self._answer(requests, choices, whole=True, shows_prompt=True, shows_usage=True)

    def opening(self, requests: Sequence[LiveRequest]) -> Json:
        """The first chunk of a stream: the assistant's role, and the prompt's ids if asked for."""
        message: AssistantMessage = {"role": "assistant", "content": ""}
        choices = [self._part(index, message, "") for index in range(len(requests))]
        return self._answer(requests, choices, shows_prompt=True)

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
    ) -> Json | None:
        """The body of a chunk; None when there is nothing to tell yet.

        `offset`: characters of this choice's text before the delta; `spoken` has read them.
        """
        ended = delta.finish_reason is not None
        said = spoken.part(delta.text, is_last=ended)
        if not (said or ended or delta.logprobs or self.return_token_ids):
            return None
        choice = self._part(index, said, delta.text)
        self._with_tokens(choice, request, [delta], offset=offset, spoken=spoken)
        return self._answer([request], [choice])

    def closing(self, requests: Sequence[LiveRequest]) -> Json:
        """The chunk without choices that carries the usage."""
        return self._answer(requests, [], shows_usage=True)

    def _part(self, index: int, said: AssistantMessage, text: str) -> Choice:
        """A choice of a chunk."""
        if self.endpoint == "chat":
            return {"index": index, "delta": said, "finish_reason": None}
        return {"index": index, "text": text, "finish_reason": None}

    def _with_tokens(
        self,
        choice: Choice,
        request: LiveRequest,
        deltas: Sequence[Delta],
        *,
        offset: int,
        spoken: MessageReader,
    ) -> Choice:
        """The choice, with what the client asked for of the tokens behind it."""
        if self.return_token_ids:
            choice["token_ids"] = [delta.token_id for delta in deltas]
        text_of = request.serving.tokenizer.token_text
        logprobs: ChatLogprobs | CompletionLogprobs | None
        if self.endpoint == "chat":
            logprobs = chat_logprobs(deltas, text_of)
        else:
            logprobs = completion_logprobs(deltas, text_of, offset=offset)
        if logprobs is not None:
            choice["logprobs"] = logprobs
        choice["finish_reason"] = spoken.finish(deltas[-1].finish_reason)
        if (stop_string := deltas[-1].stop_string) is not None:
            choice["stop_reason"] = stop_string
        return choice

    def _answer(
        self,
        requests: Sequence[LiveRequest],
        choices: list[Choice],
        *,
        whole: bool = False,
        shows_prompt: bool = False,
        shows_usage: bool = False,
    ) -> Json:
        """`shows_prompt`: with the prompt's token ids if the client asked for them. vLLM puts
        those of a chat beside its choices, those of a completion into each."""
        chat, plan = self.endpoint == "chat", requests[0].serving.plan
        of_chat: AnswerKind = "chat.completion" if whole else "chat.completion.chunk"
        answer: Answer = {
            "id": self.id,
            "object": of_chat if chat else "text_completion",
            "created": self.created,
            "model": plan.model_name,
            "system_fingerprint": f"helixweb-{plan.deployment_id}-{plan.generation}",
            "choices": choices,
        }
        if shows_prompt and self.return_token_ids:
            for place in (answer,) if chat else choices:
                place["prompt_token_ids"] = [*requests[0].prompt_ids]
        if shows_usage:
            answer["usage"] = _usage(requests)
        if any(choice["finish_reason"] for choice in choices):
            answer["helix"] = _helix(requests[0])
        return {**answer}


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

    async def whole(self) -> Json:
        """The answer once it is there. Raises RequestFailed."""
        deltas: list[list[Delta]] = [[] for _ in self._requests]
        async for arrived in arriving(self._requests):
            for index, delta in arrived:
                deltas[index].append(delta)
        return self._form.whole(self._requests, deltas)

    async def chunks(self) -> AsyncGenerator[list[Json]]:
        """The bodies of the stream's events, as many as there are. Raises RequestFailed."""
        is_open = False
        lengths = [0] * len(self._requests)
        readers = [self._form.reader(choice) for choice in range(len(self._requests))]
        async for arrived in arriving(self._requests):
            bodies = []
            if not is_open:
                # not before a token has come: clients take the first chunk for the first token
                bodies.append(self._form.opening(self._requests))
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
            yield [self._form.closing(self._requests)]

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
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _helix(request: LiveRequest) -> HelixExtension:
    return {
        "request": f"{request.id:016x}",
        "pipeline": [
            {"node": one.node, "first": one.first, "end": one.end} for one in request.hops
        ],
        "ttft_s": request.ttft_s,
        "queue_s": request.queue_s,
    }
