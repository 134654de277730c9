"""Reads answers of gpt-oss: messages in channels.

<|channel|>analysis<|message|>thoughts<|end|>
<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
<|start|>assistant<|channel|>final<|message|>text<|return|>
"""

import re

from runtime.coordinator.message_pieces import CallArguments, CallBegins, Piece, Thought, joined
from runtime.coordinator.text_stream import overlap

CHANNEL = "<|channel|>"
_START, _MESSAGE = "<|start|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", _START)
MARKERS = frozenset({CHANNEL, _MESSAGE, "<|constrain|>", *_ENDS})
_FUNCTION = re.compile(r"to=functions\.([\w.-]{1,256})")
_THOUGHTS = re.compile(r"<\|channel\|>\s*analysis")


class HarmonyReader:
    """Thoughts are the channel `analysis`, calls have a recipient, all else is text."""

    def __init__(self) -> None:
        self._held = ""
        self._header: str | None = ""  # None: within a message
        self._is_marked = False  # the answer has channels
        self._thinks = False
        self._call: int | None = None  # that the message is
        self._calls = 0

    @property
    def calls(self) -> int:
        return self._calls

    def push(self, text: str) -> list[Piece]:
        self._held += text
        pieces: list[Piece] = []
        while (
            found := self._read_header() if self._header is not None else self._read()
        ) is not None:
            pieces += found
        return joined(iter(pieces))

    def flush(self) -> list[Piece]:
        held, self._held = self._held, ""
        is_text = self._header is None or not self._is_marked
        return joined(iter([self._piece(held)])) if is_text else []

    def _read_header(self) -> list[Piece] | None:
        """What stands before a message; None when more is needed."""
        if not self._is_marked:
            begun = self._held.lstrip()
            if not begun.startswith((CHANNEL, _START)):
                if any(marker.startswith(begun) for marker in (CHANNEL, _START)):
                    return None
                self._header = None
                return []
            self._is_marked = True
        header, marker, after = self._held.partition(_MESSAGE)
        if not marker:
            return None
        self._held, self._header = after, None
        self._thinks = _THOUGHTS.search(header) is not None
        function = _FUNCTION.search(header)
        self._call = None
        if function is None:
            return []
        self._call, self._calls = self._calls, self._calls + 1
        return [CallBegins(index=self._call, name=function[1])]

    def _read(self) -> list[Piece] | None:
        """More of a message; None when more is needed."""
        found = [(at, end) for end in _ENDS if (at := self._held.find(end)) >= 0]
        if found and self._is_marked:
            at, end = min(found)
            text, self._held = self._held[:at], self._held[at + len(end) :]
            self._header = ""
            return [self._piece(text)]
        keep = max(overlap(self._held, end) for end in _ENDS) if self._is_marked else 0
        text = self._held[: len(self._held) - keep]
        self._held = self._held[len(text) :]
        return [self._piece(text)] if text else None

    def _piece(self, text: str) -> Piece:
        if self._call is not None:
            return CallArguments(index=self._call, text=text) if text else ""
        return Thought(text) if self._thinks else text
