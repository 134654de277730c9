"""Divides an answer into what the model thinks and what it says, by the tags around its thoughts.

Qwen, DeepSeek and most others write `<think>`, Mistral `[THINK]`, Seed `<seed:think>`. Some chat
templates write the opening tag themselves, so that the answer begins with a thought.
"""

from enum import Enum

from runtime.coordinator.message_pieces import Piece, Reader, Thought, joined
from runtime.coordinator.text_stream import overlap

TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
)


def tags_in(template: str) -> tuple[str, str] | None:
    """The tags that a chat template knows; None: its model does not mark thoughts."""
    return next((tags for tags in TAGS if tags[1] in template), None)


class _State(Enum):
    BEFORE = "before any thought"
    WITHIN = "within a thought"
    AFTER = "after the thoughts"


class ThoughtReader:
    """Separates reasoning from the answer; a `MessageReader` calls it.

    Takes the thoughts out of an answer, and has `rest` read what the model says.

    `is_open`: the prompt ended with the opening tag. Line breaks next to the tags are left out.
    """

    def __init__(self, tags: tuple[str, str], *, is_open: bool, rest: Reader) -> None:
        self._opening, self._closing = tags
        self._state = _State.WITHIN if is_open else _State.BEFORE
        self._rest = rest
        self._held = ""
        self._trims = True  # line breaks at the beginning of a thought, or behind it

    @property
    def calls(self) -> int:
        return self._rest.calls

    def push(self, text: str) -> list[Piece]:
        if self._state is _State.AFTER and not self._trims:
            return self._rest.push(text)
        self._held += text
        pieces: list[Piece] = []
        if self._state is _State.BEFORE:
            self._read_before()
        if self._state is _State.WITHIN:
            pieces.append(self._read_thought())
        if self._state is _State.AFTER:
            pieces += self._read_after()
        return joined(iter(pieces))

    def flush(self) -> list[Piece]:
        held, self._held = self._held, ""
        if self._state is _State.WITHIN:
            return joined(iter([Thought(held.strip("\n")), *self._rest.flush()]))
        return joined(iter([*self._rest.push(held), *self._rest.flush()]))

    def _read_before(self) -> None:
        begun = self._held.lstrip()
        if begun.startswith(self._opening):
            self._state, self._held = _State.WITHIN, begun[len(self._opening) :]
        elif not self._opening.startswith(begun):
            self._state, self._trims = _State.AFTER, False

    def _read_thought(self) -> Thought:
        thought, tag, after = self._held.partition(self._closing)
        if tag:
            self._state, self._held = _State.AFTER, after
            thought = thought.rstrip("\n")
        else:
            whole = thought[: len(thought) - overlap(thought, self._closing)]
            thought = whole.rstrip("\n")
            self._held = self._held[len(thought) :]
        if self._trims:
            thought = thought.lstrip("\n")
            self._trims = not thought
        self._trims = self._trims or bool(tag)
        return Thought(thought)

    def _read_after(self) -> list[Piece]:
        text, self._held = self._held, ""
        if self._trims:
            text = text.lstrip("\n")
            self._trims = not text
        return self._rest.push(text)
