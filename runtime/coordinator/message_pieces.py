"""What an answer is made of: text, thoughts and calls of tools; and how it is read as it grows.

A format is a generator over the text that was not read yet: it gives each piece once it is certain
what that is, and None where it needs more of the answer.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from runtime.coordinator.text_stream import overlap


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
EndFinder = Callable[[str], int | None]  # where something ends in text that only grows


@dataclass(slots=True)
class Growing:
    """The part of an answer that was not read yet. `is_over`: no more of it comes."""

    held: str = ""
    is_over: bool = False

    def take(self, end: int | None) -> str:
        """The text up to `end` (None: all), which is read then."""
        taken, self.held = self.held[:end], "" if end is None else self.held[end:]
        return taken


Pieces = Generator[Piece | None]
Format = Callable[[Growing], Generator[Piece | None, None, object]]


class Reader:
    """Reads one answer by its format as it grows; a `MessageReader` calls it."""

    def __init__(self, read: Format) -> None:
        self._text = Growing()
        self._pieces = read(self._text)
        self.calls = 0  # found so far

    def push(self, text: str) -> list[Piece]:
        """What `text`, which follows all before, makes certain."""
        self._text.held += text
        pieces = joined(iter(lambda: next(self._pieces, None), None))
        self.calls += sum(isinstance(piece, CallBegins) for piece in pieces)
        return pieces

    def flush(self) -> list[Piece]:
        """What is still held; the end of the answer."""
        self._text.is_over = True
        return self.push("")


def until(
    text: Growing,
    *markers: str,
    say: Callable[[str], Piece] = str,
    between: str = "",
    trims: str = "",
) -> Generator[Piece | None, None, str]:
    """Give what comes before the first of `markers` by `say`; return that one, "" at the end.

    Nothing is given as long as there are only characters of `between`. Those of `trims` just before
    the marker are left out.
    """
    while True:
        held = text.held
        found = [(at, marker) for marker in markers if (at := held.find(marker)) >= 0]
        begun = 0 if text.is_over else max((overlap(held, one) for one in markers), default=0)
        at, marker = min(found, default=(len(held) - begun, ""))
        said = held[:at].rstrip(trims)
        if said.strip(between):
            yield say(said)
            text.held, between = held[len(said) :], ""
        if marker or text.is_over:
            text.held = held[at + len(marker) :]
            return marker
        yield None


def through(text: Growing, end_in: EndFinder) -> Generator[None, None, str]:
    """Return the text up to where `end_in` finds its end; what there is of it when all is over."""
    while (end := end_in(text.held)) is None and not text.is_over:
        yield None
    return text.take(end)


def skip(text: Growing, characters: str) -> Generator[None]:
    """Leave out the `characters` that come first."""
    while not (rest := text.held.lstrip(characters)) and not text.is_over:
        yield None
    text.held = rest


def begins(text: Growing, *openings: str) -> Generator[None, None, bool]:
    """Return whether the text begins with one of `openings`, once that is certain."""
    while not (begun := text.held.lstrip()).startswith(openings):
        if text.is_over or not any(opening.startswith(begun) for opening in openings):
            return False
        yield None
    return True


def joined(pieces: Iterator[Piece]) -> list[Piece]:
    """Neighbouring texts, and neighbouring thoughts, as one; empty ones are left out."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, str) and isinstance(last, str):
            found[-1] = last + piece
        elif isinstance(piece, Thought) and isinstance(last, Thought):
            found[-1] = Thought(last.text + piece.text)
        elif getattr(piece, "text", piece):
            found.append(piece)
    return found
