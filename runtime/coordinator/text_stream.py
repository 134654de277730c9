"""Token ids -> text, piece by piece, never half a character and never past a stop string."""

from collections.abc import Callable, Sequence

_INCOMPLETE = "\ufffd"
_MAX_HELD_TOKENS = 8  # a character has at most 4 bytes; more held tokens are truly malformed
_MAX_GROUP_TOKENS = 64  # malformed output may go on; what is decoded each time may not


class Detokenizer:
    """Gives out text once no later token can change it.

    Decodes a short window instead of the whole answer. The window begins one completed group of
    tokens back, because some tokenizers drop the space before the first token they see.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._context: list[int] = []  # the last group that was given out
        self._held: list[int] = []  # the group that may still change
        self._given = 0  # characters of decode(context + held) given out already

    def push(self, token_id: int) -> str:
        """The text that is certain now; may be empty."""
        self._held.append(token_id)
        text = self._decode(self._context + self._held)
        if not text.endswith(_INCOMPLETE):
            piece = text[self._given :]
            if piece:
                self._context, self._held = self._held, []
                self._given = len(self._decode(self._context))
            return piece
        if len(self._held) <= _MAX_HELD_TOKENS:
            return ""
        # Truly malformed bytes: all but the last replacement character are final.
        piece = text[self._given : -1]
        self._given += len(piece)
        if len(self._held) > _MAX_GROUP_TOKENS:
            self._context, self._held = self._held, []
            self._given = len(self._decode(self._context)) - 1
        return piece

    def flush(self) -> str:
        """What is still held, complete or not; the end of the answer."""
        return self._decode(self._context + self._held)[self._given :]


class StopStrings:
    """Cuts a text at the first of some strings, wherever its pieces happen to be split."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str) -> str:
        """The text that is certainly before any stop string; sets `matched` at a match."""
        if not self._stops:  # of most requests
            return piece
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.matched = min(found)
            self._held = ""
            return text[:at]
        keep = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back because it might have begun a stop string."""
        held, self._held = self._held, ""
        return held


class AnswerText:
    """The text of one answer as far as no later token or stop string can change it."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        self._detokenizer = Detokenizer(decode)
        self._stop_strings = StopStrings(stops)

    @property
    def matched(self) -> str | None:
        """The stop string that ended it."""
        return self._stop_strings.matched

    def push(self, token_id: int | None, *, is_last: bool, may_stop: bool) -> str:
        """The text that is certain with this token; None: one that has no text.

        Before it `may_stop`, stop strings end nothing.
        """
        text = "" if token_id is None else self._detokenizer.push(token_id)
        if is_last:
            text += self._detokenizer.flush()
        if may_stop:
            text = self._stop_strings.push(text)
        if is_last and self.matched is None:
            text += self._stop_strings.flush()
        return text


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` and is not all of it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
