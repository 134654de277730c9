"""Queries that are asked hundreds of times a second: their SQL is made once, not each time.

Django takes several times as long to make the SQL of a small query as SQLite takes to answer it.
Each thread keeps what it made last, by names that say all that the SQL hangs on.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import DateTimeField, QuerySet
from django.db.models.query import ModelIterable

MOST_KEPT = 64  # of each thread

Raw = tuple[Any, ...]
Made = TypeVar("Made")


class _Kept(threading.local):
    def __init__(self) -> None:
        self.made: OrderedDict[Hashable, Any] = OrderedDict()


_KEPT = _Kept()


class Prepared:
    """One query of rows: of a model with what `select_related` joins to it, or of `values_list()`.

    Rows come raw, as the database gives them, and are made into what the query is of where that is
    wanted.
    """

    def __init__(self, rows: QuerySet[Any]) -> None:
        if hasattr(rows, "check_scope"):  # of rows that belong to clusters
            rows.check_scope()
        self._rows = rows
        self._compiler: Any = rows.query.get_compiler(using=rows.db)
        self._sql, self.params = "", ()
        try:
            self._sql, self.params = self._compiler.as_sql()
        except EmptyResultSet:  # nothing can fit, and nobody is asked
            return
        if self._compiler.has_extra_select:
            raise ValueError(f"{rows.model.__name__}: columns beside those of the rows are needed")
        if self._compiler.connection.vendor == "sqlite" and not rows.query.annotations:
            self._sql = _with_times_as_text(self._sql, self._compiler.select)
        converters = self._compiler.get_converters([one[0] for one in self._compiler.select])
        self._compiler.get_converters = lambda columns: converters  # always these columns

    @property
    def alias(self) -> str:
        """The name of its database."""
        return self._rows.db

    @property
    def columns(self) -> list[Any]:
        """What a raw row consists of, in order."""
        return [column for column, _, _ in self._compiler.select] if self._sql else []

    def fetch(self, *params: Any) -> list[Raw]:
        """Raw rows. `params`: other values in the place of those that the query was made with."""
        return self._fetched(self._sql, params or self.params)

    def fetch_slice(self, start: int, end: int) -> list[Raw]:
        """Raw rows from `start` to `end`, of a query that is not sliced itself."""
        part = connections[self.alias].ops.limit_offset_sql(start, end)
        return self._fetched(self._sql and f"{self._sql} {part}", self.params)

    def objects(self, raw: Sequence[Raw]) -> Iterable[Any]:
        """Instances of the model."""
        answered = _Answered(self._compiler, raw)
        query = SimpleNamespace(get_compiler=lambda using: answered)
        return ModelIterable(
            SimpleNamespace(  # type: ignore[arg-type]  # all that it asks of a query set
                db=self.alias,
                query=query,
                model=self._rows.model,
                _known_related_objects=self._rows._known_related_objects,  # type: ignore[attr-defined]
            )
        )

    def values(self, raw: Sequence[Raw]) -> Iterable[Raw]:
        """What `values_list()` gives."""
        found: Iterable[Raw] = self._compiler.results_iter([raw], tuple_expected=True)
        return found

    def _fetched(self, sql: str, params: Sequence[Any]) -> list[Raw]:
        if not sql:
            return []
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    def belongs_here(self) -> bool:
        """Whether this thread has the connection still that the SQL was made for."""
        return self._compiler.connection is connections[self.alias]


class _Answered:
    """A compiler of SQL that has its answer already."""

    def __init__(self, compiler: Any, raw: Sequence[Raw]) -> None:
        self._compiler, self._raw = compiler, raw

    def execute_sql(self, **how: Any) -> Sequence[Sequence[Raw]]:
        return [self._raw]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler, name)


def _with_times_as_text(sql: str, select: Sequence[Any]) -> str:
    """SQLite's library has Python parse each time of each row where it knows a column's type, which
    it does not of `+column`. Django parses texts as well, where somebody wants the time.
    """
    columns, rest = sql.split(" FROM ", 1)
    for column, (text, _), _ in select:
        if isinstance(getattr(column, "target", None), DateTimeField):
            columns = columns.replace(text, f"+{text}")
    return f"{columns} FROM {rest}"


def prepared(name: Hashable, rows: Callable[[], QuerySet[Any]]) -> Prepared:
    """Made of `rows()` unless this thread has kept what it made of that `name`."""
    found = _found(name)
    if isinstance(found, Prepared) and found.belongs_here():
        return found
    return _keep(name, Prepared(rows()))


def counted(name: Hashable, rows: Callable[[], QuerySet[Any]]) -> int:
    """How many rows there are."""
    kept = _found(name)
    alias = "" if kept is None else kept[0]
    if kept is not None:
        with connections[alias].cursor() as cursor:
            cursor.execute(*kept[1:])
            (count,) = cursor.fetchone()
            return int(count)
    wanted, asked = rows(), list[tuple[Any, Any]]()

    def note(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        asked.append((sql, params))
        return execute(sql, params, many, context)

    with connections[wanted.db].execute_wrapper(note):
        count = wanted.count()
    if len(asked) == 1:
        _keep(name, (wanted.db, *asked[0]))
    return count


def _found(name: Hashable) -> Any:
    made = _KEPT.made
    found = made.get(name)
    if found is not None:
        made.move_to_end(name)
    return found


def _keep(name: Hashable, made: Made) -> Made:
    kept = _KEPT.made
    kept[name] = made
    kept.move_to_end(name)
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
    return made
