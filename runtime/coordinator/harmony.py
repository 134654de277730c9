"""Reads answers of gpt-oss: messages in channels.

<|channel|>analysis<|message|>thoughts<|end|>
<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
<|start|>assistant<|channel|>final<|message|>text<|return|>
"""

import re
from collections.abc import Callable

from runtime.coordinator.message_pieces import (
    CallArguments,
    CallBegins,
    Growing,
    Piece,
    Pieces,
    Thought,
    begins,
    through,
    until,
)
from runtime.coordinator.tool_calls import MarkerEnd

_CHANNEL, _START, _MESSAGE = "<|channel|>", "<|start|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", _START)
MARKERS = frozenset({_CHANNEL, _MESSAGE, "<|constrain|>", *_ENDS})
_FUNCTION = re.compile(r"to=functions\.([\w.-]{1,256})")
_THOUGHTS = re.compile(r"<\|channel\|>\s*analysis")


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
