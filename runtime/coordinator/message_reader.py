"""Turns the text of one answer into the assistant's message: what it thinks, says and calls.

Thoughts are marked by tags: Qwen, DeepSeek and most others write `<think>`, Mistral `[THINK]`, Seed
`<seed:think>`. Some chat templates write the opening tag themselves, so that the answer begins with
a thought. Answers of gpt-oss are messages in channels:

<|channel|>analysis<|message|>thoughts<|end|>
<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
<|start|>assistant<|channel|>final<|message|>text<|return|>
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from runtime.coordinator.message_pieces import (
    CallArguments,
    CallBegins,
    Format,
    Growing,
    Piece,
    Pieces,
    Reader,
    Thought,
    begins,
    skip,
    through,
    until,
)
from runtime.coordinator.tool_calls import CALL_MARKERS, MarkerEnd, ToolDialect, calls_format
from runtime.protocol.openai_answers import (
    AssistantMessage,
    ChoiceFinish,
    FinishReason,
    ToolCallPart,
)
from runtime.protocol.openai_tools import Tool

_CHANNEL, _START, _MESSAGE = "<|channel|>", "<|start|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", _START)
CHANNEL_MARKERS = frozenset({_CHANNEL, _MESSAGE, "<|constrain|>", *_ENDS})
_FUNCTION = re.compile(r"to=functions\.([\w.-]{1,256})")
_THOUGHTS = re.compile(r"<\|channel\|>\s*analysis")
TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
)
MARKERS = frozenset({tag for tags in TAGS for tag in tags}) | CHANNEL_MARKERS | CALL_MARKERS


def read_channels(text: Growing) -> Pieces:
    """Thoughts are the channel `analysis`, calls have a recipient, all else is text."""
    if not (yield from begins(text, _CHANNEL, _START)):
        yield from until(text)
    calls = 0
    while (header := (yield from through(text, MarkerEnd(_MESSAGE)))).endswith(_MESSAGE):
        say: Callable[[str], Piece] = Thought if _THOUGHTS.search(header) else str
        if function := _FUNCTION.search(header):
            yield CallBegins(index=calls, name=function[1])
            say, calls = _arguments_of(calls), calls + 1
        yield from until(text, *_ENDS, say=say)


def _arguments_of(index: int) -> Callable[[str], Piece]:
    return lambda text: CallArguments(index=index, text=text)


def tags_in(template: str) -> tuple[str, str] | None:
    """The tags that a chat template knows; None: its model does not mark thoughts."""
    return next((tags for tags in TAGS if tags[1] in template), None)


def read_thoughts(text: Growing, *, tags: tuple[str, str], is_open: bool, rest: Format) -> Pieces:
    """The thoughts of an answer, then by `rest` what the model says.

    `is_open`: the prompt ended with the opening tag. Line breaks next to the tags are left out.
    """
    opening, closing = tags
    if is_open or (yield from begins(text, opening)):
        if not is_open:
            text.held = text.held.lstrip().removeprefix(opening)
        yield from skip(text, "\n")
        yield from until(text, closing, say=Thought, trims="\n")
        yield from skip(text, "\n")
    yield from rest(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoughts:
    """How thoughts are marked, and whether the prompt ended within one."""

    tags: tuple[str, str]
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForm:
    """How the message stands in the text. `dialect` None: there are no calls to look for.

    Calls beyond `most_calls` are left out (None: none is), and thoughts unless `tells_thoughts`.
    """

    dialect: ToolDialect | None = None
    tools: Sequence[Tool] = ()
    thoughts: Thoughts | None = None
    most_calls: int | None = None
    tells_thoughts: bool = True

    @property
    def has_markers(self) -> bool:
        """True if the text must show control tokens that divide it."""
        return self.dialect is not None or self.thoughts is not None

    def reader(self) -> Reader:
        rest: Format = until
        if self.dialect is ToolDialect.HARMONY:
            rest = read_channels
        elif self.dialect is not None:
            rest = calls_format(self.dialect, self.tools)
        if (marked := self.thoughts) is None:
            return Reader(rest)
        return Reader(partial(read_thoughts, tags=marked.tags, is_open=marked.is_open, rest=rest))


PLAIN = MessageForm()  # all is text


class MessageReader:
    """Reads thoughts, text and tool calls from an answer; the answering task calls it.

    Of one choice, whole or part by part.

    `call_ids` makes the ids of calls: unlike those of any other answer.
    """

    def __init__(self, form: MessageForm, *, call_ids: str) -> None:
        self._form = form
        self._reader = form.reader()
        self._is_plain = not form.has_markers
        self._call_ids = call_ids

    def whole(self, text: str) -> AssistantMessage:
        """The message of an answer that has ended."""
        pieces = self._wanted(self._reader.push(text) + self._reader.flush())
        calls: dict[int, ToolCallPart] = {}
        for piece in pieces:
            if isinstance(piece, CallBegins):
                calls[piece.index] = self._begun(piece)
            elif isinstance(piece, CallArguments):
                calls[piece.index]["function"]["arguments"] += piece.text
        message = _said(pieces, [*calls.values()])
        if not message:
            message["content"] = ""
        return {"role": "assistant", **message}

    def part(self, text: str, *, is_last: bool) -> AssistantMessage:
        """What the next `text` of a stream makes certain; empty when that is nothing."""
        if self._is_plain:
            return {"content": text} if text else {}
        pieces = self._reader.push(text)
        if is_last:
            pieces += self._reader.flush()
        pieces = self._wanted(pieces)
        calls = (piece for piece in pieces if isinstance(piece, CallBegins | CallArguments))
        return _said(pieces, [self._streamed(piece) for piece in calls])

    def finish(self, reason: FinishReason | None) -> ChoiceFinish | None:
        """Why the choice ended, once its text was read."""
        return "tool_calls" if reason == "stop" and self._reader.calls else reason

    def _wanted(self, pieces: list[Piece]) -> list[Piece]:
        most = self._form.most_calls
        return [
            piece
            for piece in pieces
            if (
                self._form.tells_thoughts
                if isinstance(piece, Thought)
                else isinstance(piece, str) or most is None or piece.index < most
            )
        ]

    def _streamed(self, piece: CallBegins | CallArguments) -> ToolCallPart:
        if isinstance(piece, CallBegins):
            return {"index": piece.index, **self._begun(piece)}
        return {"index": piece.index, "function": {"arguments": piece.text}}

    def _begun(self, piece: CallBegins) -> ToolCallPart:
        return {
            "id": f"call_{self._call_ids}-{piece.index}",
            "type": "function",
            "function": {"name": piece.name, "arguments": ""},
        }


def _said(pieces: Iterable[Piece], calls: list[ToolCallPart]) -> AssistantMessage:
    """The message of these pieces, without what there is nothing of."""
    message: AssistantMessage = {}
    if thoughts := "".join(piece.text for piece in pieces if isinstance(piece, Thought)):
        message["reasoning_content"] = thoughts
    if text := "".join(piece for piece in pieces if isinstance(piece, str)):
        message["content"] = text
    if calls:
        message["tool_calls"] = calls
    return message
