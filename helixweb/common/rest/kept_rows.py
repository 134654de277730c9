"""JSON of rows that were shown lately, by all that they were made of."""

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime

# Of what was used lately; as much again is of what was used before.
MOST_BYTES = 16 << 20
# What stands beside a text: the values it was made of are about as long, and are objects.
_TIMES_A_TEXT, _BYTES_OF_OBJECTS = 3, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowText:
    """`until`: when it would be another though its values are the same."""

    text: bytes
    made_at: datetime
    until: datetime

    def is_right_at(self, now: datetime) -> bool:
        """If its values are those it was made of."""
        return self.made_at <= now < self.until


class KeptRows:
    """Two generations: what nobody asks for while one fills up is forgotten."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._young: dict[Hashable, dict[Hashable, RowText]] = {}
        self._old: dict[Hashable, dict[Hashable, RowText]] = {}
        self._bytes = 0

    def of(self, context: Hashable) -> "KeptRowsOf":
        """Those of one context: values that are the same there give the same text."""
        with self._lock:
            young = self._young.setdefault(context, {})
            return KeptRowsOf(self, young, self._old.get(context, {}))

    def grown_by(self, text: RowText) -> None:
        """Account for one that is kept now."""
        with self._lock:
            self._bytes += _TIMES_A_TEXT * len(text.text) + _BYTES_OF_OBJECTS
            if self._bytes > self._most_bytes:
                self._young, self._old, self._bytes = {}, self._young, 0


class KeptRowsOf:
    """Of one context, for one page."""

    def __init__(
        self,
        whole: KeptRows,
        young: dict[Hashable, RowText],
        old: dict[Hashable, RowText],
    ) -> None:
        self._whole, self._young, self._old = whole, young, old

    def get(self, rows: Sequence[Hashable]) -> list[RowText | None]:
        """One for each of `rows`, by its values."""
        found = [*map(self._young.get, rows)]
        if self._old and None in found:
            for place, values in enumerate(rows):
                if found[place] is None and (text := self._old.get(values)) is not None:
                    found[place] = text
                    self.put(values, text)
        return found

    def put(self, values: Hashable, text: RowText) -> None:
        self._young[values] = text
        self._whole.grown_by(text)


KEPT_ROWS = KeptRows(MOST_BYTES)
