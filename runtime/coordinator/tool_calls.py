"""Finds calls of tools in the text of an answer, as the families write them.

Hermes and Qwen put each call between tags, `<tool_call>{"name": ..., "arguments": {...}}
</tool_call>`, anywhere in the text. Llama 3 answers with nothing but calls, `{"name": ...,
"parameters": {...}}`, several divided by semicolons. A call that was forced by a schema is one bare
object. Of these the arguments are given out as they come.

Mistral writes `[TOOL_CALLS]` before a list of calls in JSON, or before `NAME[ARGS]{...}`. DeepSeek
writes NAME, a separator and the arguments between markers of its own, in a block of calls.
Qwen3-Coder writes `<function=NAME><parameter=KEY>VALUE</parameter></function>` in `<tool_call>`.
These are given out once they are whole. What turns out to be no call is text.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from runtime.coordinator.message_pieces import (
    CallArguments,
    CallBegins,
    EndFinder,
    Format,
    Growing,
    Piece,
    Pieces,
    until,
)
from runtime.protocol.openai_tools import Tool

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_MISTRAL, _ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
_DEEPSEEK, _DEEPSEEK_END, _CALL, _CALL_END, _SEPARATOR = (
    f"<\uff5ctool\u2581{words}\uff5c>"
    for words in (
        "calls\u2581begin",
        "calls\u2581end",
        "call\u2581begin",
        "call\u2581end",
        "sep",
    )
)
CALL_MARKERS = frozenset({
    _MISTRAL, _ARGUMENTS, _OPENING, _CLOSING,
    _DEEPSEEK, _DEEPSEEK_END, _CALL, _CALL_END, _SEPARATOR,
})  # fmt: skip
# Name first, as the families are taught; other orders are understood once the call is whole. Tried
# whenever the answer grows, so bounded.
_HEAD = re.compile(
    r'\s{0,99}\{\s{0,99}"name"\s{0,99}:\s{0,99}("(?:[^"\\]|\\.){1,256}")\s{0,99},\s{0,99}'
    r'"(?:arguments|parameters)"\s{0,99}:\s{0,99}(?=\{)'
)
_DEEPSEEK_CALL = re.compile(
    f"{_CALL}(?:function{_SEPARATOR})?(?P<name>[^<\n]{{1,256}}?)"
    f"(?:{_SEPARATOR}|\n```json\n)(?P<arguments>.*?)(?:\n```)?{_CALL_END}",
    re.DOTALL,
)
_MISTRAL_NAME = re.compile(r"\s*([\w.-]{1,256})")
_QWEN_CALL = re.compile(r"<function=([^>\n]{1,256})>(.*?)</function>", re.DOTALL)
_QWEN_PARAMETER = re.compile(r"<parameter=([^>\n]{1,256})>\n?(.*?)\n?</parameter>", re.DOTALL)
_BETWEEN = " \n\r\t,;"
_LONGEST_NAME = 512

Calls = list[tuple[str, str]]  # names and arguments, these as JSON text


class ToolDialect(Enum):
    """How calls stand in an answer."""

    TAGGED = "tagged"
    BARE = "bare"
    MISTRAL = "mistral"
    DEEPSEEK = "deepseek"
    QWEN_XML = "qwen-xml"
    HARMONY = "harmony"


def dialect_of(template: str) -> ToolDialect | None:
    """What a chat template teaches its model; None: nothing that is understood here."""
    if "<|channel|>" in template:
        return ToolDialect.HARMONY
    if _MISTRAL in template:
        return ToolDialect.MISTRAL
    if "tool\u2581calls\u2581begin" in template:
        return ToolDialect.DEEPSEEK
    if "<function=" in template:
        is_known = _OPENING in template and "<parameter=" in template
        return ToolDialect.QWEN_XML if is_known else None
    if _OPENING in template:
        return ToolDialect.TAGGED
    if '"parameters"' in template and ("python_tag" in template or "ipython" in template):
        return ToolDialect.BARE
    return None


def opening_of(dialect: ToolDialect) -> str:
    """What the assistant's turn begins with when it must be a call."""
    return f"{_OPENING}\n" if dialect is ToolDialect.TAGGED else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """How blocks of calls stand in the text: behind `opening`, up to where `ends` finds it.

    `calls_in` finds none where a block is not as it should be. With `closing`, a call in JSON is
    given out as it comes, and that follows its arguments.
    """

    opening: str
    ends: Callable[[], EndFinder]
    calls_in: Callable[[str], Calls]
    closing: str = ""


def calls_format(dialect: ToolDialect, tools: Sequence[Tool]) -> Format:
    """How to read an answer of any dialect but gpt-oss's; `tools` say which values are no text."""
    if dialect is ToolDialect.BARE:
        return _read_bare
    types = {tool.function.name: _types_in(tool.function.parameters or {}) for tool in tools}
    tagged = partial(MarkerEnd, _CLOSING)
    blocks = {
        ToolDialect.TAGGED: _Blocks(
            opening=_OPENING, ends=tagged, calls_in=_calls_of_json, closing=_CLOSING
        ),
        ToolDialect.MISTRAL: _Blocks(opening=_MISTRAL, ends=_JsonEnd, calls_in=_calls_of_mistral),
        ToolDialect.DEEPSEEK: _Blocks(
            opening=_DEEPSEEK, ends=partial(MarkerEnd, _DEEPSEEK_END), calls_in=_calls_of_deepseek
        ),
        ToolDialect.QWEN_XML: _Blocks(
            opening=_OPENING, ends=tagged, calls_in=partial(_calls_of_qwen, types)
        ),
    }
    return partial(_read_marked, blocks=blocks[dialect])


def _read_marked(text: Growing, *, blocks: _Blocks) -> Pieces:
    """Calls anywhere in the text; what only divides them is left out."""
    calls = 0
    while (yield from until(text, blocks.opening, between=_BETWEEN if calls else "")):
        calls += yield from _read_block(text, blocks, index=calls)


def _read_bare(text: Growing) -> Pieces:
    """Nothing but calls; from what is none on all is text."""
    blocks = _Blocks(opening="", ends=_JsonEnd, calls_in=_calls_of_json, closing="}")
    calls = 0
    while True:
        while not (begun := text.held.lstrip(_BETWEEN)) and not text.is_over:
            yield None
        if not begun.startswith("{"):
            break
        text.held = begun
        found = yield from _read_block(text, blocks, index=calls)
        if not found:
            break
        calls += found
    yield from until(text, between=_BETWEEN if calls else "")


def _read_block(
    text: Growing, blocks: _Blocks, *, index: int
) -> Generator[Piece | None, None, int]:
    """One block; returns how many calls it holds, the first of them call `index`."""
    end_in = blocks.ends()
    while True:
        if blocks.closing and (head := _head_of(text.held)) is not None:
            name, length = head
            yield CallBegins(index=index, name=name)
            text.take(length)
            yield from _read_arguments(text, index=index)
            yield from until(text, blocks.closing, say=lambda _: "")
            return 1
        end = end_in(text.held)
        if end is not None or text.is_over:
            break
        yield None
    block = text.take(end)
    calls = blocks.calls_in(block)
    if not calls:
        yield blocks.opening + block
    for number, (name, arguments) in enumerate(calls, start=index):
        yield CallBegins(index=number, name=name)
        yield CallArguments(index=number, text=arguments)
    return len(calls)


def _read_arguments(text: Growing, *, index: int) -> Pieces:
    """The JSON object that comes next, as it comes."""
    braces = Braces()
    while True:
        end = braces.closed_at(text.held)
        yield CallArguments(index=index, text=text.take(end))
        if end is not None or text.is_over:
            return
        yield None


def _head_of(held: str) -> tuple[str, int] | None:
    """The name in the head of a call, and how long that is; None where there is none, or the name
    holds half a character."""
    head = _HEAD.match(held)
    if head is None:
        return None
    try:
        name: str = json.loads(head[1])
        name.encode()
    except ValueError:
        return None
    return name, head.end()


class Braces:
    """Finds the end of a JSON object in growing text."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def closed_at(self, text: str) -> int | None:
        """Where in `text`, the next part, the object ends; None: not in it."""
        for index, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = char == "\\"
                self._in_string = char != '"'
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "]}":
                self._depth -= 1
                if self._depth == 0:
                    return index + 1
        return None


class MarkerEnd:
    """Finds the marker that a block ends with, and goes with it."""

    def __init__(self, closing: str) -> None:
        self._closing = closing
        self._looked_at = 0

    def __call__(self, held: str) -> int | None:
        at = held.find(self._closing, self._looked_at)
        self._looked_at = max(0, len(held) - len(self._closing) + 1)
        return None if at < 0 else at + len(self._closing)


class _JsonEnd:
    """The block ends with the list that it begins with, or with the object behind a name."""

    def __init__(self) -> None:
        self._braces = Braces()
        self._looked_at = 0

    def __call__(self, held: str) -> int | None:
        if not self._looked_at:
            begun = held.lstrip()
            is_list = begun.startswith("[") and not begun.startswith(_ARGUMENTS)
            at = held.find("[" if is_list else "{")
            if at < 0:
                return len(held) if len(held) > _LONGEST_NAME else None
            self._looked_at = at
        before, self._looked_at = self._looked_at, len(held)
        end = self._braces.closed_at(held[before:])
        return None if end is None else before + end


def _calls_of_json(block: str) -> Calls:
    """The one call that the block is."""
    try:
        call = json.loads(block.removesuffix(_CLOSING))
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return []
        name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        (name + arguments).encode()  # half a character cannot be sent
    except (ValueError, RecursionError):
        return []
    return [(name, arguments)]


def _calls_of_mistral(block: str) -> Calls:
    if block.lstrip().startswith("["):
        try:
            listed = json.loads(block)
        except (ValueError, RecursionError):
            return []
        calls = [call for each in listed for call in _calls_of_json(json.dumps(each))]
        return calls if len(calls) == len(listed) else []
    name, at = _MISTRAL_NAME.match(block), block.find("{")
    if name is None or at < 0 or not _is_object(block[at:]):
        return []
    return [(name[1], block[at:].strip())]


def _calls_of_deepseek(block: str) -> Calls:
    found = [(call["name"], call["arguments"].strip()) for call in _DEEPSEEK_CALL.finditer(block)]
    return found if all(_is_object(arguments) for _, arguments in found) else []


def _calls_of_qwen(types: Mapping[str, Mapping[str, object]], block: str) -> Calls:
    calls = []
    for function in _QWEN_CALL.finditer(block):
        name, known = function[1].strip(), types.get(function[1].strip(), {})
        arguments = {
            key.strip(): _value(text, known.get(key.strip(), "string"))
            for key, text in _QWEN_PARAMETER.findall(function[2])
        }
        calls.append((name, json.dumps(arguments, ensure_ascii=False)))
    return calls


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _types_in(schema: dict[str, Any]) -> dict[str, object]:
    """The JSON types of an object's properties; None where the schema does not name one."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {
        key: each.get("type") if isinstance(each, dict) else None
        for key, each in properties.items()
    }


def _value(text: str, kind: object) -> object:
    """A parameter's value: JSON, unless it is a string or no JSON."""
    if kind == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
