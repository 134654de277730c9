"""Rows as JSON values, quickly: what DRF decides for every field of every row is decided once.

A reader of a serializer gives what the serializer would (a test compares them on every list); what
it does not know better it leaves to DRF's field.
"""

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

from rest_framework import fields, relations, serializers
from rest_framework.fields import SkipField

Reader = Callable[[Any], Any]
_LEFT_OUT = object()
# What is shown of a column as the database gives it, which the renderer knows to write.
_AS_IT_IS = (
    fields.BooleanField, fields.CharField, fields.ChoiceField, fields.DateTimeField,
    fields.FloatField, fields.IntegerField, fields.JSONField, fields.UUIDField,
)  # fmt: skip


@lru_cache(maxsize=512)  # anybody may ask for other fields
def reader_of(
    serializer: Any,
    *,
    wanted: tuple[str, ...] | None = None,
    utc: bool = True,
) -> Reader:
    """Of rows, as `serializer` shows them, without what is not `wanted`. `utc`: the reader's zone
    is that, in which the database gives times."""
    whole = serializer()
    if not isinstance(whole, serializers.Serializer) or _has_its_own_way(whole):
        as_it_does: Reader = whole.to_representation
        return as_it_does
    readers = tuple(
        (name, _reader(field, utc=utc))
        for name, field in whole.fields.items()
        if not field.write_only and (wanted is None or name in wanted)
    )

    def read(row: Any) -> dict[str, Any]:
        return {name: value for name, get in readers if (value := get(row)) is not _LEFT_OUT}

    return read


def _has_its_own_way(serializer: serializers.Serializer[Any]) -> bool:
    return type(serializer).to_representation is not serializers.Serializer.to_representation


def _reader(field: Any, *, utc: bool) -> Reader:
    if isinstance(field, fields.SerializerMethodField):
        method: Reader = getattr(field.parent, str(field.method_name))
        return method
    if len(field.source_attrs) == 1:
        known = _column(field, utc=utc) or _related(field, utc=utc)
        if known is not None:
            return known
    return _as_drf_does(field)


def _column(field: Any, *, utc: bool) -> Reader | None:
    """A column of the row's own table."""
    model = getattr(getattr(field.parent, "Meta", None), "model", None)
    columns = {} if model is None else {one.name: one for one in model._meta.concrete_fields}
    column = columns.get(field.source)
    if column is None:
        return None
    kind = type(field)
    if kind is relations.PrimaryKeyRelatedField and field.pk_field is None:
        return attrgetter(column.attname)
    is_time = kind is fields.DateTimeField
    if kind in _AS_IT_IS and not (is_time and not utc):
        return attrgetter(column.attname)
    if kind is fields.ListField and type(field.child) is fields.FloatField:
        get = attrgetter(column.attname)
        return lambda row: None if (value := get(row)) is None else [float(one) for one in value]
    return None


def _related(field: Any, *, utc: bool) -> Reader | None:
    """Rows of other tables that hang on this one."""
    rows = attrgetter(str(field.source))
    if isinstance(field, serializers.ListSerializer):
        shown: Any = type(field.child)
        child = reader_of(shown, utc=utc)
        return lambda row: [child(one) for one in rows(row).all()]
    if isinstance(field, relations.ManyRelatedField):
        related = field.child_relation
        if type(related) is relations.SlugRelatedField:
            name = attrgetter(str(related.slug_field))
            return lambda row: [name(one) for one in rows(row).all()]
    return None


def _as_drf_does(field: Any) -> Reader:
    def read(row: Any) -> Any:
        try:
            value = field.get_attribute(row)
        except SkipField:
            return _LEFT_OUT
        return None if value is None else field.to_representation(value)

    return read
