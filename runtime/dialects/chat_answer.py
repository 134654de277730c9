"""Reads the answer of a chat completion, whole or by its chunks, into blocks of one kind each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from runtime.protocol.openai import ApiError

BlockKind = Literal["reasoning", "text", "call"]


class _Function(BaseModel):
    name: str | None = None
    arguments: str | None = None


class _Call(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Function = _Function()


class _Said(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # vLLM's name for it
    tool_calls: list[_Call] | None = None


class _Choice(BaseModel):
    message: _Said | None = None
    delta: _Said | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _CachedTokens(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None


class _ChatPart(BaseModel):
    """A whole answer or a chunk, as far as it is translated."""

    id: str = ""
    created: int = 0
    model: str = ""
    choices: list[_Choice] = []
    usage: _Usage | None = None


@dataclass(slots=True, kw_only=True)
class Block:
    """One part of the message; the `text` of a call is its arguments, as JSON text."""

    kind: BlockKind
    index: int
    text: str = ""
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """A block has begun."""

    block: Block


@dataclass(frozen=True, slots=True)
class Grew:
    """A block goes on by `text`."""

    block: Block
    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A block is complete."""

    block: Block


Change = Opened | Grew | Closed


class ChatAnswer:
    """The message as far as it was read. Only one block is open at a time, the last."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.token = ""  # of the answer's id: what follows its prefix
        self.model = ""
        self.created = 0
        self.finish_reason: str | None = None
        self.stop_string: str | None = None
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self._open: tuple[BlockKind, int] | None = None  # the number is that of the call

    def read(self, content: dict[str, Any]) -> Iterator[Change]:
        """What a chunk, or a whole answer, adds. Raises ApiError 502 if it is neither."""
        try:
            part = _ChatPart.model_validate(content)
        except ValidationError as error:
            raise ApiError(
                message="the engine's answer is not a chat completion", code="bad_answer"
            ) from error
        self.token = self.token or part.id.rpartition("-")[2]
        self.model = part.model or self.model
        self.created = part.created or self.created
        if part.usage is not None:
            self.prompt_tokens = part.usage.prompt_tokens
            self.output_tokens = part.usage.completion_tokens or 0
            details = part.usage.prompt_tokens_details
            self.cached_tokens = (details.cached_tokens if details else None) or 0
        for choice in part.choices[:1]:
            yield from self._read_said(choice.delta or choice.message or _Said())
            self.finish_reason = choice.finish_reason or self.finish_reason
            if isinstance(choice.stop_reason, str):
                self.stop_string = choice.stop_reason

    def end(self) -> Iterator[Change]:
        """Close what is open; the answer is over."""
        if self._open is not None:
            self._open = None
            yield Closed(self.blocks[-1])

    def _read_said(self, said: _Said) -> Iterator[Change]:
        yield from self._grow("reasoning", said.reasoning_content or said.reasoning)
        yield from self._grow("text", said.content)
        for position, call in enumerate(said.tool_calls or ()):
            number = position if call.index is None else call.index
            if self._open != ("call", number):
                yield from self._begin(
                    "call", number, call_id=call.id or "", name=call.function.name or ""
                )
            yield from self._grow("call", call.function.arguments, number=number)

    def _grow(self, kind: BlockKind, text: str | None, *, number: int = 0) -> Iterator[Change]:
        if not text:
            return
        if self._open != (kind, number):
            yield from self._begin(kind, number)
        block = self.blocks[-1]
        block.text += text
        yield Grew(block, text)

    def _begin(
        self, kind: BlockKind, number: int, *, call_id: str = "", name: str = ""
    ) -> Iterator[Change]:
        yield from self.end()
        block = Block(kind=kind, index=len(self.blocks), call_id=call_id, name=name)
        self.blocks.append(block)
        self._open = (kind, number)
        yield Opened(block)
