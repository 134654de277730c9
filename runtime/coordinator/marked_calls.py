"""Reads calls of tools that stand between markers; each is given out once it is whole.

Mistral writes `[TOOL_CALLS]` before a list of calls in JSON, or before `NAME[ARGS]{...}`. DeepSeek
writes NAME, a separator and the arguments between markers of its own, in a block of calls.
Qwen3-Coder writes `<function=NAME><parameter=KEY>VALUE</parameter></function>` in `<tool_call>`.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from runtime.coordinator.message_pieces import CallArguments, CallBegins, Piece, joined
from runtime.coordinator.text_stream import overlap
from runtime.coordinator.tool_calls import Braces, parsed_call
from runtime.protocol.openai_tools import Tool

_MISTRAL, _ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
_QWEN, _QWEN_END = "<tool_call>", "</tool_call>"
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
MARKERS = frozenset({
    _MISTRAL, _ARGUMENTS, _QWEN, _QWEN_END,
    _DEEPSEEK, _DEEPSEEK_END, _CALL, _CALL_END, _SEPARATOR,
})  # fmt: skip
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
EndFinder = Callable[[str], int | None]  # where a block of calls ends in text that only grows


class MarkedCalls:
    """Reads tool calls that a model marks with control tokens; a `MessageReader` calls it.

    Reads one answer. What only looks like calls is text.
    """

    def __init__(
        self,
        opening: str,
        *,
        ends: Callable[[], EndFinder],
        calls_in: Callable[[str], Calls],
    ) -> None:
        """`calls_in` finds none where a block is not as it should be."""
        self._opening = opening
        self._ends = ends
        self._calls_in = calls_in
        self._held = ""
        self._end_in: EndFinder | None = None  # within a block of calls
        self._calls = 0

    @property
    def calls(self) -> int:
        return self._calls

    def push(self, text: str) -> list[Piece]:
        self._held += text
        pieces: list[Piece] = []
        while True:
            found = self._read_text() if self._end_in is None else self._read_block(self._end_in)
            if found is None:
                return joined(iter(pieces))
            pieces += found

    def flush(self) -> list[Piece]:
        held, self._held = self._held, ""
        if self._end_in is not None:
            return self._told(held)
        return [held] if self._is_said(held) else []

    def _read_text(self) -> list[Piece] | None:
        before, marker, after = self._held.partition(self._opening)
        if marker:
            self._held, self._end_in = after, self._ends()
            return [before] if self._is_said(before) else []
        said = before[: len(before) - overlap(before, self._opening)]
        if not self._is_said(said):
            return None
        self._held = before[len(said) :]
        return [said]

    def _read_block(self, end_in: EndFinder) -> list[Piece] | None:
        end = end_in(self._held)
        if end is None:
            return None
        block, self._held, self._end_in = self._held[:end], self._held[end:], None
        return self._told(block)

    def _told(self, block: str) -> list[Piece]:
        calls = self._calls_in(block)
        if not calls:
            return [self._opening + block]
        pieces: list[Piece] = []
        for name, arguments in calls:
            pieces.append(CallBegins(index=self._calls, name=name))
            pieces.append(CallArguments(index=self._calls, text=arguments))
            self._calls += 1
        return pieces

    def _is_said(self, text: str) -> bool:
        """False for nothing, and for what only divides calls."""
        return bool(text) and (not self._calls or bool(text.strip(_BETWEEN)))


def mistral_calls() -> MarkedCalls:
    return MarkedCalls(_MISTRAL, ends=_JsonEnd, calls_in=_calls_of_mistral)


def deepseek_calls() -> MarkedCalls:
    return MarkedCalls(
        _DEEPSEEK, ends=partial(_MarkerEnd, _DEEPSEEK_END), calls_in=_calls_of_deepseek
    )


def qwen_calls(tools: Sequence[Tool]) -> MarkedCalls:
    """`tools` say which values are no text."""
    types = {tool.function.name: _types_in(tool.function.parameters or {}) for tool in tools}
    return MarkedCalls(
        _QWEN, ends=partial(_MarkerEnd, _QWEN_END), calls_in=partial(_calls_of_qwen, types)
    )


class _MarkerEnd:
    """The block ends with a marker."""

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


def _calls_of_mistral(block: str) -> Calls:
    if block.lstrip().startswith("["):
        try:
            listed = json.loads(block)
        except (ValueError, RecursionError):
            return []
        return _whole_calls(parsed_call(json.dumps(each)) for each in listed)
    name, at = _MISTRAL_NAME.match(block), block.find("{")
    if name is None or at < 0 or not _is_object(block[at:]):
        return []
    return [(name[1], block[at:].strip())]


def _calls_of_deepseek(block: str) -> Calls:
    found = [(call["name"], call["arguments"].strip()) for call in _DEEPSEEK_CALL.finditer(block)]
    return found if all(_is_object(arguments) for _, arguments in found) else []


def _calls_of_qwen(types: dict[str, dict[str, object]], block: str) -> Calls:
    calls = []
    for function in _QWEN_CALL.finditer(block):
        name, known = function[1].strip(), types.get(function[1].strip(), {})
        arguments = {
            key.strip(): _value(text, known.get(key.strip(), "string"))
            for key, text in _QWEN_PARAMETER.findall(function[2])
        }
        calls.append((name, json.dumps(arguments, ensure_ascii=False)))
    return calls


def _whole_calls(parsed: Any) -> Calls:
    """All calls, or none if one of them is not a call."""
    found = [*parsed]
    return [] if any(name is None for name, _ in found) else found


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
