"""Rows of all tables as JSON lines and back, the same on SQLite and PostgreSQL.

Models are those of the migrations that were applied, not of today's code: so a database is saved
before it is migrated, and an old backup is loaded as it was and migrated then.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import connection, models
from django.db.migrations.loader import MigrationLoader
from django.db.models import JSONField, Value
from django.utils.duration import duration_string

from helixweb.operations.schema_version import Key, nodes_of

_ROWS_AT_ONCE = 2000
_ROWS_PER_INSERT = 500


def applied_by_app(loader: MigrationLoader) -> dict[str, list[str]]:
    """Names of the applied migrations of the apps of this site."""
    known = {app for app, _ in loader.graph.nodes}
    found: dict[str, list[str]] = {}
    for app, name in sorted(loader.applied_migrations):
        if app in known:
            found.setdefault(app, []).append(name)
    return found


def ends_of(loader: MigrationLoader, migrations: dict[str, list[str]]) -> list[Key]:
    """The last of `migrations` of each app: those that no other of them follows."""
    names = {(app, name) for app, names in migrations.items() for name in names}
    given = nodes_of(loader, names)
    followed = {
        parent.key
        for key in given
        for parent in loader.graph.node_map[key].parents
        if parent.key[0] == key[0]
    }
    return sorted(given - followed)


def models_of(
    loader: MigrationLoader, migrations: dict[str, list[str]]
) -> list[type[models.Model]]:
    """Models with tables once exactly `migrations` are applied."""
    state = loader.project_state(ends_of(loader, migrations))
    found = state.apps.get_models(include_auto_created=True)
    return [m for m in found if m._meta.managed and not m._meta.proxy and not m._meta.swapped]


def columns_of(model: type[models.Model]) -> "list[models.Field[Any, Any]]":
    """The columns that store data."""
    return [field for field in model._meta.concrete_fields if not getattr(field, "generated", 0)]


@contextmanager
def one_moment() -> Iterator[None]:
    """Context manager: all reads see one snapshot of the database, while others write."""
    if connection.in_atomic_block:  # the caller's transaction is the moment
        yield
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        else:
            cursor.execute("BEGIN")  # deferred: takes no lock that a writer would wait for
        try:
            yield
        finally:
            cursor.execute("ROLLBACK")


def rows_of(model: type[models.Model]) -> Iterator[bytes]:
    """Each row as a line: a JSON list of the values of its columns."""
    names = [field.attname for field in columns_of(model)]
    rows = model._base_manager.order_by("pk").values_list(*names)
    last = None
    while True:
        page = rows if last is None else rows.filter(pk__gt=last)
        found = list(page.values_list("pk", *names)[:_ROWS_AT_ONCE])
        for row in found:
            yield json.dumps(row[1:], default=_plain, separators=(",", ":")).encode() + b"\n"
        if len(found) < _ROWS_AT_ONCE:
            return
        last = found[-1][0]


def load_rows(model: type[models.Model], names: Sequence[str], lines: Iterator[bytes]) -> int:
    """Put rows in as they are, past defaults and times of creation; how many."""
    by_name = {field.attname: field for field in columns_of(model)}
    fields = [by_name[name] for name in names]
    manager: Any = model._base_manager
    count = 0
    while batch := list(islice(lines, _batch_size(fields))):
        rows = [_row(model, fields, json.loads(line)) for line in batch]
        manager.get_queryset()._insert(rows, fields=fields, using=connection.alias, raw=True)
        count += len(rows)
    return count


def last_id(model: type[models.Model]) -> int | None:
    """The last number that the database gave a row, which may be gone; None: it gives none."""
    key = model._meta.pk
    if not isinstance(key, models.AutoField):
        return None
    table = model._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [f'"{table}"', key.column])
            sequence = cursor.fetchone()[0]
            cursor.execute(f"SELECT last_value, is_called FROM {sequence}")  # noqa: S608
            value, was_called = cursor.fetchone()
            return int(value) if was_called else 0
        cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])
        found = cursor.fetchone()
        return int(found[0]) if found else 0


def set_last_id(model: type[models.Model], last: int) -> None:
    """The next row gets the number after `last`."""
    key, table = model._meta.pk, model._meta.db_table
    if key is None:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT setval(pg_get_serial_sequence(%s, %s), %s, %s)",
                [f'"{table}"', key.column, max(1, last), last > 0],
            )
            return
        cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
        if last:
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, last])


def _row(
    model: type[models.Model], fields: "Sequence[models.Field[Any, Any]]", values: Sequence[Any]
) -> models.Model:
    pairs = zip(fields, values, strict=True)
    return model(**{field.attname: _value(field, value) for field, value in pairs})


def _value(field: "models.Field[Any, Any]", value: Any) -> Any:
    if value is None:
        # The JSON value null, where the column takes no NULL.
        return Value(None, JSONField()) if isinstance(field, JSONField) and not field.null else None
    target = field
    while isinstance(target, models.ForeignKey):
        target = target.target_field
    return value if isinstance(target, JSONField) else target.to_python(value)


def _plain(value: Any) -> Any:
    """A value without a JSON type as text; `Field.to_python` reads it back."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return duration_string(value)
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(bytes(value)).decode()
    raise TypeError(f"no form for a {type(value).__name__}")


def _batch_size(fields: "Sequence[models.Field[Any, Any]]") -> int:
    most: int = connection.ops.bulk_batch_size(list(fields), range(_ROWS_PER_INSERT))
    return max(1, min(_ROWS_PER_INSERT, most))
