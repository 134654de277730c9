"""What an answer is made of: text, thoughts and calls of tools."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thinks before or between what it says."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegins:
    """Call `index` of the answer, from 0, is of the function `name`."""

    index: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallArguments:
    """More of the JSON text of the arguments of call `index`."""

    index: int
    text: str


Piece = str | Thought | CallBegins | CallArguments


class Reader(Protocol):
    """Reads one answer as it grows. Gives out each piece once it is certain what it is."""

    @property
    def calls(self) -> int:
        """Calls found so far."""

    def push(self, text: str) -> list[Piece]:
        """What `text`, which follows all before, makes certain."""

    def flush(self) -> list[Piece]:
        """What is still held; the end of the answer."""


class TextReader:
    """Takes everything for text."""

    calls = 0

    def push(self, text: str) -> list[Piece]:
        return [text] if text else []

    def flush(self) -> list[Piece]:
        return []


def joined(pieces: Iterator[Piece]) -> list[Piece]:
    """Neighbouring texts, and neighbouring thoughts, as one; empty ones are left out."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, str) and isinstance(last, str):
            found[-1] = last + piece
        elif isinstance(piece, Thought) and isinstance(last, Thought):
            found[-1] = Thought(last.text + piece.text)
        elif piece not in ("", Thought("")):
            found.append(piece)
    return found
