"""Finds calls of tools in the text of an answer, as the families write them.

Hermes and Qwen put each call between tags, `<tool_call>{"name": ..., "arguments": {...}}
</tool_call>`, anywhere in the text. Llama 3 answers with nothing but calls, `{"name": ...,
"parameters": {...}}`, several divided by semicolons. A call that was forced by a schema is one bare
object. What turns out to be no call is text.
"""

import json
import re
from enum import Enum

from runtime.coordinator.message_pieces import CallArguments, CallBegins, Piece, joined
from runtime.coordinator.text_stream import overlap

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
# Name first, as the families are taught; other orders are understood once the call is whole. Tried
# whenever the answer grows, so bounded.
_HEAD = re.compile(
    r'\s{0,99}\{\s{0,99}"name"\s{0,99}:\s{0,99}("(?:[^"\\]|\\.){1,256}")\s{0,99},\s{0,99}'
    r'"(?:arguments|parameters)"\s{0,99}:\s{0,99}(?=\{)'
)
_BETWEEN = " \n\r\t;"


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
    if "[TOOL_CALLS]" in template:
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


class ToolCallReader:
    """Reads tool calls written as JSON; a `MessageReader` calls it.

    Reads one answer as it grows, tagged or bare, with arguments as they come.
    """

    def __init__(self, dialect: ToolDialect) -> None:
        self._dialect = dialect
        self._held = ""
        self._call: _Call | None = None
        self._calls = 0
        self._is_text = False  # of bare calls: the answer turned out to be text

    @property
    def calls(self) -> int:
        """Calls found so far."""
        return self._calls

    def push(self, text: str) -> list[Piece]:
        """What `text`, which follows all before, makes certain."""
        self._held += text
        pieces: list[Piece] = []
        while True:
            found = self._read_call() if self._call is not None else self._read_text()
            if found is None:
                return joined(iter(pieces))
            pieces += found

    def flush(self) -> list[Piece]:
        """What is still held; the end of the answer."""
        pieces: list[Piece] = []
        if self._call is not None and not self._call.is_begun:
            pieces = self._finished_call(self._held, ended=False)
        elif self._call is None and (self._calls == 0 or self._held.strip(_BETWEEN)):
            pieces = [self._held]
        self._held = ""
        return joined(iter(pieces))

    def _read_text(self) -> list[Piece] | None:
        """What comes before the next call; None when more of the answer is needed."""
        if self._is_text:
            text, self._held = self._held, ""
            return [text] if text else None
        if self._dialect is ToolDialect.TAGGED:
            return self._read_to_tag()
        begun = self._held.lstrip(_BETWEEN)
        if not begun:
            return None
        if begun.startswith("{"):
            self._held = begun
            self._call = _Call(index=self._calls)
        else:
            self._is_text = True
        return []

    def _read_to_tag(self) -> list[Piece] | None:
        before, tag, after = self._held.partition(_OPENING)
        if tag:
            self._held = after
            self._call = _Call(index=self._calls)
        else:
            keep = overlap(before, _OPENING)
            before, self._held = before[: len(before) - keep], before[len(before) - keep :]
        if self._calls and not before.strip():
            before = ""  # the line ends between calls
        return [before] if before else [] if tag else None

    def _read_call(self) -> list[Piece] | None:
        call = self._call
        if call is None:
            return None
        if not call.is_begun:
            head = _HEAD.match(self._held)
            name = None if head is None else _name_in(head[1])
            if head is None or name is None:
                return self._read_whole(call)
            call.is_begun = True
            self._held = self._held[head.end() :]
            self._calls += 1
            return [CallBegins(index=call.index, name=name)]
        if call.arguments_end:
            return self._read_end()
        taken = call.take_arguments(self._held)
        arguments, self._held = self._held[:taken], self._held[taken:]
        return [CallArguments(index=call.index, text=arguments)] if arguments else None

    def _read_whole(self, call: "_Call") -> list[Piece] | None:
        """A call whose name did not come first, once it is all there."""
        if self._dialect is ToolDialect.TAGGED:
            end, closing = call.tag_in(self._held), _CLOSING
        else:
            end, closing = call.brace_in(self._held), ""
        if end is None:
            return None
        whole, self._held = self._held[:end], self._held[end + len(closing) :]
        return self._finished_call(whole, ended=True)

    def _read_end(self) -> list[Piece] | None:
        """Past the brace and the tag behind the arguments."""
        closing = "}" if self._dialect is ToolDialect.BARE else _CLOSING
        at = self._held.find(closing)
        if at < 0:
            return None
        self._held = self._held[at + len(closing) :]
        self._call = None
        return []

    def _finished_call(self, whole: str, *, ended: bool) -> list[Piece]:
        """A call whose name did not come first, or text that only began like one."""
        tagged = self._dialect is ToolDialect.TAGGED
        self._call = None
        name, arguments = parsed_call(whole)
        if name is None:
            self._is_text = not tagged
            tail = _CLOSING if ended else ""
            return [f"{_OPENING}{whole}{tail}" if tagged else whole]
        index, self._calls = self._calls, self._calls + 1
        return [CallBegins(index=index, name=name), CallArguments(index=index, text=arguments)]


class _Call:
    """Where reading is within one call."""

    def __init__(self, *, index: int) -> None:
        self.index = index
        self.is_begun = False
        self.arguments_end = False
        self._braces = Braces()
        self._braces_of_whole = Braces()
        self._looked_at = 0  # characters of what is held, before the call has begun

    def take_arguments(self, text: str) -> int:
        """How many characters of `text` belong to the arguments."""
        end = self._braces.closed_at(text)
        self.arguments_end = end is not None
        return len(text) if end is None else end

    def tag_in(self, held: str) -> int | None:
        """Where in `held`, which only grows, the closing tag stands; None: not yet."""
        at = held.find(_CLOSING, self._looked_at)
        self._looked_at = max(0, len(held) - len(_CLOSING) + 1)
        return None if at < 0 else at

    def brace_in(self, held: str) -> int | None:
        """Where in `held`, which only grows, the object that it begins with ends; None: not yet."""
        before, self._looked_at = self._looked_at, len(held)
        end = self._braces_of_whole.closed_at(held[before:])
        return None if end is None else before + end


class Braces:
    """Finds the end of a JSON object in growing text; `ToolCallReader` calls it.

    Follows JSON text to the end of the object it begins with.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def closed_at(self, text: str) -> int | None:
        """Where in `text` the object ends; None: not in it."""
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


def _name_in(text: str) -> str | None:
    """What a JSON text of a string says; None where it is none, or holds half a character."""
    try:
        name: str = json.loads(text)
        name.encode()
    except ValueError:
        return None
    return name


def parsed_call(whole: str) -> tuple[str | None, str]:
    """Name and arguments of a call; the name is None where it is none."""
    try:
        call = json.loads(whole)
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return None, ""
        name, arguments = call["name"], call.get("arguments", call.get("parameters", {}))
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        (name + arguments).encode()  # half a character cannot be sent
    except (ValueError, RecursionError):
        return None, ""
    return name, arguments
