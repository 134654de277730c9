"""One list, as one reader sees it: how many rows it has, and pages of them.

A page is read from the database each time it is asked for, but the JSON of a row is kept by all
that the database gave for it: only rows that are like none that was shown lately are written anew.
Nothing has to be known of what changed, and nobody gets a row that the query did not give.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol

import orjson
from django.db import connections
from django.db.models import QuerySet
from django.utils import timezone

from helixweb.common.prepared import Prepared, Raw, counted, prepared
from helixweb.common.rest.kept_rows import KEPT_ROWS, RowText
from helixweb.common.rest.rendering import json_of
from helixweb.common.rest.rows import RowReader, without

NEVER = datetime.min.replace(tzinfo=UTC)  # is a row right whose time nobody knows
_TEXT, _MADE_AT, _UNTIL = attrgetter("text"), attrgetter("made_at"), attrgetter("until")

Until = Callable[[Sequence[Mapping[str, Any]]], datetime | None]


class Listing(Protocol):
    """What is paged."""

    @property
    def until(self) -> datetime | None:
        """Until when the page is right that was read, if nothing is committed; None: unknown."""

    def count(self) -> int:
        """Of all pages."""

    def page(self, start: int, end: int) -> Any:
        """Rows from `start` to `end`, as the renderer takes them."""


class EachTime:
    """Of rows that hang on more than what one query gives for them."""

    def __init__(self, rows: QuerySet[Any], reader: RowReader, until: Until) -> None:
        self._rows, self._reader, self._until_of = rows, reader, until
        self._shown: Sequence[Any] = ()

    @property
    def until(self) -> datetime | None:
        return self._until_of(self._shown)

    def count(self) -> int:
        return self._rows.count()

    def page(self, start: int, end: int) -> Any:
        self._shown = self._reader.page(self._rows, start, end)
        return self._shown


@dataclass(slots=True, kw_only=True)
class RowByRow:
    """Of rows that are the same as long as the database gives the same for each of them.

    `name` says all that the SQL hangs on; None: it is made each time. `context`: what else the rows
    hang on, which are alike for `reader`, and `until` the time that `until_of` says of one.
    """

    name: Hashable | None
    rows: Callable[[], QuerySet[Any]]
    reader: RowReader
    context: Hashable
    until_of: Until
    until: datetime | None = None

    def __post_init__(self) -> None:
        self.until = self.until_of(())

    def count(self) -> int:
        if self.name is None:
            return self.rows().count()
        return counted(("count", self.name), self.rows)

    def page(self, start: int, end: int) -> Any:
        query = self._query()
        found = query.fetch_slice(start, end)
        keys = self._with_words(query, found) if self.reader.words else found
        if not keys:
            return []
        now = timezone.now()
        texts = KEPT_ROWS.of((self.reader, self.context)).get(keys)
        new = _not_right(texts, now)
        if new:
            made = self._made(query, [keys[place] for place in new], made_at=now)
            for place, text in zip(new, made, strict=True):
                texts[place] = text
        shown: list[RowText] = texts  # type: ignore[assignment]  # none is missing any more
        until = min(map(_UNTIL, shown))
        self.until = None if until == NEVER else until
        return orjson.Fragment(b"[" + b",".join(map(_TEXT, shown)) + b"]")

    def _query(self) -> Prepared:
        def wanted() -> QuerySet[Any]:
            rows, reader = self.rows(), self.reader
            if reader.columns is not None:
                plain = rows.select_related(None).prefetch_related(None)
                return plain.values_list(*reader.columns.values())
            whole: QuerySet[Any] = without(rows, {words.relation for words in reader.words})
            return whole

        if self.name is None:
            return Prepared(wanted())
        return prepared(("page", self.name), wanted)

    def _with_words(self, query: Prepared, found: Sequence[Raw]) -> list[Raw]:
        """Each row with its words, in one query for each kind of them."""
        place = next(
            number
            for number, column in enumerate(query.columns)
            if getattr(column.target, "primary_key", False)
        )
        pks = [row[place] for row in found]
        all_words = [words.of(pks) for words in self.reader.words]
        return [
            (*row, *(tuple(words.get(pk, ())) for words in all_words))
            for row, pk in zip(found, pks, strict=True)
        ]

    def _made(self, query: Prepared, keys: Sequence[Raw], *, made_at: datetime) -> list[RowText]:
        """Written anew, and kept unless more was read for it."""
        asked: list[str] = []

        def note(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
            asked.append(sql)
            return execute(sql, params, many, context)

        with connections[query.alias].execute_wrapper(note):
            shown = self._shown(query, keys)
            made = [
                RowText(text=json_of(row), made_at=made_at, until=self.until_of([row]) or NEVER)
                for row in shown
            ]
        if not asked:
            kept = KEPT_ROWS.of((self.reader, self.context))
            for key, text in zip(keys, made, strict=True):
                if text.until != NEVER:
                    kept.put(key, text)
        return made

    def _shown(self, query: Prepared, keys: Sequence[Raw]) -> list[Mapping[str, Any]]:
        reader, words = self.reader, self.reader.words
        if reader.columns is not None:
            names = tuple(reader.columns)
            return [dict(zip(names, row, strict=True)) for row in query.values(keys)]
        raw = [key[: len(key) - len(words)] for key in keys] if words else keys
        objects = list(query.objects(raw))
        for row, key in zip(objects, keys, strict=True):
            for number, one in enumerate(words, start=-len(words)):
                one.keep(row, key[number])
        return [reader.read(row) for row in objects]


def _not_right(texts: Sequence[RowText | None], now: datetime) -> list[int]:
    """The places of those that are missing, or that the time has made others."""
    if None not in texts:
        known: Sequence[RowText] = texts  # type: ignore[assignment]
        if max(map(_MADE_AT, known)) <= now < min(map(_UNTIL, known)):
            return []
    return [place for place, text in enumerate(texts) if text is None or not text.is_right_at(now)]


@lru_cache(maxsize=512)  # asked each time, of what views are made with
def is_row_by_row(rows: QuerySet[Any], reader: RowReader) -> bool:
    """Whether one query, and one for each kind of words, give all that `reader` shows of rows."""
    if reader.columns is not None:
        return not rows.query.annotations and not rows.query.extra
    return not without(rows, {words.relation for words in reader.words})._prefetch_related_lookups
