"""A reader's position among events: the newest one it has, and older ones that may still appear.

Ids are assigned before rows are committed, so with concurrent transactions a row may appear after
others with higher ids. A reader that reconnects sends which ones it has missed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from helixweb.common.queries import parsed_id

# More ids than that in a row without one were never rows, or have been tidied away.
MOST_MISSING = 100


@dataclass(frozen=True, slots=True)
class Place:
    """All events up to `newest` were read, except `missing`."""

    newest: int
    missing: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> "Place | None":
        """The place that `str` wrote; None for any other text."""
        newest_text, _tilde, missing_text = text.partition("~")
        newest = parsed_id(newest_text)
        words = missing_text.split(".") if missing_text else []
        missing = {parsed_id(word) for word in words[:MOST_MISSING]}
        if newest is None or len(words) > MOST_MISSING or None in missing:
            return None
        return cls(newest, frozenset(pk for pk in missing if pk is not None))

    def __str__(self) -> str:
        if not self.missing:
            return str(self.newest)
        return f"{self.newest}~{'.'.join(map(str, sorted(self.missing)))}"


START = Place(0)


def missing_of(ids: Iterable[int], *, after: int) -> frozenset[int]:
    """The numbers between `after` and the highest of `ids` that are not there, the latest of them
    if they are many."""
    missing: list[int] = []
    before = after
    for pk in sorted(ids):
        if pk - before - 1 <= MOST_MISSING:
            missing += range(before + 1, pk)
        before = pk
    return frozenset(missing[-MOST_MISSING:])
