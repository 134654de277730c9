"""What many tests begin with: made once by the product, then put back for each test."""

import io
import pickle
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone
from rest_framework.test import APIClient

Model = type[models.Model]
Rows = dict[Model, dict[Any, tuple[Any, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """What a function returned, and what it did: `written` are rows that are new or changed,
    `counts` the number of rows of the same tables before, `replaced` the keys of changed ones."""

    at: datetime
    value: bytes
    written: bytes
    counts: dict[Model, int]
    replaced: dict[Model, list[Any]]


_MOST = 8  # recordings of one function with the same values, after different rows
_recordings: defaultdict[Any, list[_Recording]] = defaultdict(list)


def recorded(make: Callable[[], Any]) -> Any:
    """What `make` returns, with the rows it writes, and times as if it was called now.

    `make` is a lambda. It is called once for the same values of its variables and the same number
    of rows in the tables that it writes to; rows among its variables must be `recorded`
    themselves. What follows a commit is not done again.
    """
    cells = make.__closure__ or ()
    given = [_identity(cell.cell_contents) for cell in cells]
    if None in given:
        return make()
    place = make.__code__.co_filename, make.__code__.co_firstlineno
    key = (*place, connection.in_atomic_block, *given)
    known = _recordings[key]
    count = cache(lambda model: model._base_manager.count())
    for number, recording in enumerate(known):
        if all(count(model) == before for model, before in recording.counts.items()):
            try:
                value = _put_back(recording)
            except IntegrityError:  # another test made as many rows as before, with these keys
                return make()
            return _named(value, (*key, number))
    if len(known) == _MOST:
        return make()
    before, now = _all_rows(), timezone.now()
    with pytest.MonkeyPatch.context() as patch:  # however long it takes, its rows are of now
        patch.setattr(timezone, "now", lambda: now)
        value = make()
        known.append(_recording(value, before, _all_rows()))
    return _named(value, (*key, len(known) - 1))


def _named(value: Any, name: Any) -> Any:
    """Rows of two recordings have other keys where numbers are not given twice (PostgreSQL)."""
    if hasattr(value, "__dict__"):  # rows and doubles, of which others may be made
        value.recorded_as = name
    return value


def _identity(value: Any) -> Any:
    """Equal for values of which the same is made; None: not known."""
    if isinstance(value, APIClient):
        value = value.handler._force_user
    if hasattr(value, "__dict__") and not isinstance(value, Enum):
        return getattr(value, "recorded_as", None)
    return pickle.dumps(value)


def _all_rows() -> Rows:
    return {
        model: {row[0]: row for row in model._base_manager.values_list("pk", *_names(model))}
        for model in apps.get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy
    }


def _names(model: Model) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def _recording(value: Any, before: Rows, after: Rows) -> _Recording:
    written = {
        model: [row[1:] for pk, row in rows.items() if before[model].get(pk) != row]
        for model, rows in after.items()
        if rows != before[model]
    }
    return _Recording(
        at=timezone.now(),
        value=_stored(value),
        written=_stored({model._meta.label: rows for model, rows in written.items()}),
        counts={model: len(before[model]) for model in written},
        replaced={
            model: [pk for pk, row in before[model].items() if after[model].get(pk) != row]
            for model in written
        },
    )


def _put_back(recording: _Recording) -> Any:
    later = timezone.now() - recording.at
    made: dict[tuple[str, Any], models.Model] = {}
    with transaction.atomic():  # references are checked at its end
        for model, keys in recording.replaced.items():
            if keys:
                model._base_manager.filter(pk__in=keys)._raw_delete(connection.alias)
        for label, rows in _Unpickler(io.BytesIO(recording.written), later).load().items():
            model = apps.get_model(label)
            names = _names(model)
            new = [model.from_db(connection.alias, names, row) for row in rows]
            if "second" in names:  # of a sample: since 1970
                for row in new:
                    row.second += int(later.total_seconds())  # type: ignore[attr-defined]
            _insert(model, new)
            made |= {(label, row.pk): row for row in new}
    return _Unpickler(io.BytesIO(recording.value), later, made).load()


def _insert(model: Model, rows: list[models.Model]) -> None:
    """As `bulk_create`, which would replace times of creation by now."""
    fields = [field for field in model._meta.concrete_fields if not field.generated]
    size = max(connection.ops.bulk_batch_size(fields, rows), 1)
    for first in range(0, len(rows), size):
        batch = rows[first : first + size]
        model._base_manager._insert(batch, fields=fields, using=connection.alias, raw=True)


def _stored(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Stores rows as references, times to be moved, and of clients whose requests they make."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, models.Model):
            return value._meta.label, value.pk
        return value.isoformat() if isinstance(value, datetime) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, APIClient):
            return _client, (value._credentials, value.handler._force_user)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(
        self,
        file: io.BytesIO,
        later: timedelta,
        made: Mapping[tuple[str, Any], models.Model] | None = None,
    ) -> None:
        super().__init__(file)
        self.later = later
        self.made = made or {}

    def persistent_load(self, reference: Any) -> Any:
        if isinstance(reference, str):
            return datetime.fromisoformat(reference) + self.later
        label, pk = reference
        return self.made.get(reference) or apps.get_model(label)._base_manager.get(pk=pk)


def _client(credentials: dict[str, str], user: Any) -> APIClient:
    client = APIClient()
    client.credentials(**credentials)
    if user is not None:
        client.force_authenticate(user)
    return client
