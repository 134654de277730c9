"""Rows as JSON values, quickly: what DRF decides for every field of every row is decided once.

A reader gives what the serializer would (a test compares them on every list); what it does not
know better it leaves to DRF's field.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import JSONField, ManyToOneRel, QuerySet
from rest_framework import fields, relations, serializers
from rest_framework.fields import SkipField, empty

from helixweb.common.prepared import Prepared, prepared

Reader = Callable[[Any], Any]
_LEFT_OUT = object()
# What is shown of a column as the database gives it, which the renderer knows to write.
_AS_IT_IS = (
    fields.BigIntegerField, fields.BooleanField, fields.CharField, fields.ChoiceField,
    fields.DateTimeField, fields.FloatField, fields.IntegerField, fields.JSONField,
    fields.UUIDField,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowReader:
    """What one serializer shows of rows.

    `columns`: of the row's own table, by field, if that is all there is; else None. `words`: fields
    that list one column of rows that hang on this one.
    """

    read: Reader
    columns: Mapping[str, str] | None = None
    words: tuple["Words", ...] = ()

    def page(self, rows: QuerySet[Any], start: int, end: int) -> list[Any]:
        """The rows from `start` to `end`."""
        if self.columns is not None:
            names = tuple(self.columns)
            plain = rows.select_related(None).prefetch_related(None)
            found = plain.values_list(*self.columns.values())[start:end]
            return [dict(zip(names, values, strict=True)) for values in found]
        if not self.words:
            return [self.read(row) for row in rows[start:end]]
        kept = without(rows, {words.relation for words in self.words})
        page = list(kept[start:end])
        for words in self.words:
            words.attach(page)
        return [self.read(row) for row in page]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One column of the rows that hang on each row by `key`, in their order, in one query."""

    relation: str
    column: str
    key: Any

    @property
    def kept_as(self) -> str:
        return f"_words_of_{self.relation}"

    def attach(self, page: list[Any]) -> None:
        found = self.of([row.pk for row in page])
        for row in page:
            self.keep(row, found.get(row.pk, []))

    def of(self, pks: Sequence[Any]) -> dict[Any, list[Any]]:
        """By the keys of rows; those without any are left out."""
        found: dict[Any, list[Any]] = {}
        for pk, word in self._query(pks).fetch(*pks) if pks else ():
            found.setdefault(pk, []).append(word)
        return found

    def keep(self, row: Any, words: Iterable[Any]) -> None:
        """For `read`."""
        setattr(row, self.kept_as, list(words))

    def _query(self, pks: Sequence[Any]) -> Prepared:
        to_row, model = self.key.attname, self.key.model

        def rows() -> QuerySet[Any]:
            related = model._base_manager.filter(**{f"{to_row}__in": pks})
            ordered: QuerySet[Any] = related.order_by(*model._meta.ordering)
            return ordered.values_list(to_row, self.column)

        return prepared(("words", self, len(pks)), rows)

    def read(self, row: Any) -> list[Any]:
        kept: list[Any] | None = row.__dict__.get(self.kept_as)
        if kept is None:
            return [getattr(one, self.column) for one in getattr(row, self.relation).all()]
        return kept


@lru_cache(maxsize=512)  # anybody may ask for other fields
def reader_of(serializer: Any, *, wanted: tuple[str, ...] | None = None, utc: bool) -> RowReader:
    """Of rows, as `serializer` shows them, without what is not `wanted`. `utc`: the reader's zone
    is that, in which the database gives times."""
    whole = serializer()
    if not isinstance(whole, serializers.Serializer) or _has_its_own_way(whole):
        return RowReader(read=whole.to_representation)
    shown = {
        name: field
        for name, field in whole.fields.items()
        if not field.write_only and (wanted is None or name in wanted)
    }
    columns = {name: _column(field, utc=utc) for name, field in shown.items()}
    words = tuple(one for field in shown.values() if (one := _words(field)) is not None)
    return RowReader(
        read=_object_reader(shown.values(), utc=utc),
        columns=None if None in columns.values() else columns,  # type: ignore[arg-type]
        words=words,
    )


def _object_reader(shown: Iterable[Any], *, utc: bool) -> Reader:
    readers = tuple((str(field.field_name), _reader(field, utc=utc)) for field in shown)

    def read(row: Any) -> dict[str, Any]:
        return {name: value for name, get in readers if (value := get(row)) is not _LEFT_OUT}

    return read


def _has_its_own_way(serializer: serializers.Serializer[Any]) -> bool:
    return type(serializer).to_representation is not serializers.Serializer.to_representation


def _reader(field: Any, *, utc: bool) -> Reader:
    if isinstance(field, fields.SerializerMethodField):
        method: Reader = getattr(field.parent, str(field.method_name))
        return method
    column, words = _column(field, utc=utc), _words(field)
    if column is not None:
        return attrgetter(column)
    if words is not None:
        return words.read
    if isinstance(field, serializers.ListSerializer) and len(field.source_attrs) == 1:
        shown: Any = type(field.child)
        child, rows = reader_of(shown, utc=utc).read, attrgetter(str(field.source))
        return lambda row: [child(one) for one in rows(row).all()]
    return _by_json(field) or _by_path(field) or _as_drf_does(field)


def _model_column(field: Any) -> Any:
    """The column of the row's own table that the field shows; None: it shows none."""
    model = getattr(getattr(field.parent, "Meta", None), "model", None)
    columns = {} if model is None else {one.name: one for one in model._meta.concrete_fields}
    return columns.get(field.source)


def _column(field: Any, *, utc: bool) -> str | None:
    """The column that can be shown as it is."""
    column, kind = _model_column(field), type(field)
    if column is None:
        return None
    if kind is relations.PrimaryKeyRelatedField:
        return column.attname if field.pk_field is None else None
    if kind is fields.DateTimeField and not utc:
        return None
    if kind is fields.BigIntegerField and field.to_representation(1) != 1:
        return None
    as_it_is = kind in _AS_IT_IS or (_is_raw(field) and isinstance(column, JSONField))
    return column.attname if as_it_is else None


def _is_raw(field: Any) -> bool:
    """A list or an object of anything, or of texts and numbers as they were stored."""
    if type(field) not in (fields.DictField, fields.ListField):
        return False
    child = field.child
    plain = (fields._UnvalidatedField, fields.CharField, fields.IntegerField)
    return type(child) in plain or _is_raw(child)


def _words(field: Any) -> Words | None:
    related = getattr(field, "child_relation", None)
    if type(related) is not relations.SlugRelatedField or len(field.source_attrs) != 1:
        return None
    for one in field.parent.Meta.model._meta.related_objects:
        if isinstance(one, ManyToOneRel) and one.get_accessor_name() == field.source:
            return Words(relation=field.source, column=str(related.slug_field), key=one.field)
    return None


def _by_json(field: Any) -> Reader | None:
    """An object in a JSON column, with what is missing filled in."""
    if not isinstance(field, serializers.Serializer) or _has_its_own_way(field):
        return None
    column = _model_column(field)
    if not isinstance(column, JSONField):
        return None
    get, read = attrgetter(column.attname), _mapping_reader(field)
    return lambda row: None if (value := get(row)) is None else read(value)


def _mapping_reader(serializer: Any) -> Reader:
    parts = tuple(
        (
            str(field.field_name),
            str(field.source),
            field,
            _part_reader(field),
            _LEFT_OUT if callable(field.default) or field.default is empty else field.default,
        )
        for field in serializer.fields.values()
        if not field.write_only
    )

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return serializer.to_representation(value)
        shown = {}
        for name, source, field, show, default in parts:
            part = value.get(source, default)
            if part is _LEFT_OUT:
                try:
                    part = field.get_attribute(value)
                except SkipField:
                    continue
            shown[name] = part if part is None or show is None else show(part)
        return shown

    return read


def _part_reader(field: Any) -> Reader | None:
    """Of one value within an object; None: it is shown as it is."""
    if type(field) in _AS_IT_IS or _is_raw(field):
        return None
    if isinstance(field, serializers.Serializer) and not _has_its_own_way(field):
        return _mapping_reader(field)
    show: Reader = field.to_representation
    return show


def _by_path(field: Any) -> Reader | None:
    """A column of a row that this one names, or a property of this one; nothing: the default."""
    if type(field) not in _AS_IT_IS or isinstance(field, fields.DateTimeField):
        return None
    get, default = attrgetter(str(field.source)), field.default
    if field.source == "*" or callable(default):
        return None

    def read(row: Any) -> Any:
        try:
            value = get(row)
        except (AttributeError, ObjectDoesNotExist):
            if default is empty:
                raise
            return default
        return None if value is None else field.to_representation(value)

    return read


def _as_drf_does(field: Any) -> Reader:
    def read(row: Any) -> Any:
        try:
            value = field.get_attribute(row)
        except SkipField:
            return _LEFT_OUT
        return None if value is None else field.to_representation(value)

    return read


def without(rows: Any, relations: set[str]) -> Any:
    """`rows` that do not fetch these relations."""
    lookups = rows._prefetch_related_lookups
    kept = [one for one in lookups if str(getattr(one, "prefetch_to", one)) not in relations]
    return rows.prefetch_related(None).prefetch_related(*kept)
