"""Which rows a list shows, in which order, and what of each: filters, ordering, search, fields.

All lists understand the same parameters, and refuse by name what they do not understand.
"""

import re
from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F
from django_filters.filters import IsoDateTimeFilter, QuerySetRequestMixin
from django_filters.filterset import FILTER_FOR_DBFIELD_DEFAULTS
from django_filters.rest_framework import BooleanFilter, DjangoFilterBackend, NumberFilter
from rest_framework import exceptions, filters, serializers
from rest_framework.request import Request

from helixweb.common.queries import within

PAGING = ("limit", "offset")
FIELDS, ORDERING, SEARCH = "fields", "ordering", "q"
NO_FILTERS = {*PAGING, FIELDS, ORDERING, SEARCH}
MAX_SEARCH_LENGTH = 200
# Django takes 1_0 for 10, 1.0 for 1, and digits of all scripts.
_WHOLE_NUMBERS = re.compile("-?[0-9]+(,-?[0-9]+)*")
_AT_LEAST_AT_MOST = ("exact", "gte", "lte")
# Lookups of each kind of column; the first kind that fits counts.
_LOOKUPS: tuple[tuple[type[Any], tuple[str, ...]], ...] = (
    (models.ForeignKey, ("exact", "in")),
    (models.BooleanField, ("exact",)),
    (models.UUIDField, ("exact",)),
    (models.DateTimeField, _AT_LEAST_AT_MOST),
    (models.FloatField, _AT_LEAST_AT_MOST),
    (models.IntegerField, _AT_LEAST_AT_MOST),
    (models.CharField, ("exact", "in")),
    (models.TextField, ("exact",)),
)


class _TrueOrFalseField(forms.Field):
    def to_python(self, value: Any) -> bool | None:
        if value in self.empty_values:
            return None
        known = {"true": True, "false": False}
        if (word := str(value).lower()) not in known:
            message = "%(value)r is not allowed; give true or false."
            raise forms.ValidationError(message, params={"value": word[:20]})
        return known[word]


class TrueOrFalse(BooleanFilter):  # type: ignore[misc]
    """A strict boolean: django-filter's ignores values that it does not understand."""

    field_class = _TrueOrFalseField

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"widget": forms.TextInput, **options})


class Whole(NumberFilter):  # type: ignore[misc]
    """A whole number; `Filters` refuses what Django accepts beside."""

    field_class = forms.IntegerField


class TimeFilter(IsoDateTimeFilter):  # type: ignore[misc]
    """A time, converted to UTC: PostgreSQL refuses offsets of 16 hours and more."""

    def filter(self, rows: Any, value: datetime | None) -> Any:
        return super().filter(rows, value and value.astimezone(UTC))


class Filters(DjangoFilterBackend):  # type: ignore[misc]
    """Filters by the columns in `filterset_fields`: equal, and `__in`, `__gte`, … by their kind."""

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        """Skip the filters if there are no parameters: the form of all filters is large."""
        if request.query_params.keys() <= NO_FILTERS:
            return queryset
        known = getattr(self.get_filterset_class(view, queryset), "base_filters", {})
        for name, text in request.query_params.items():
            is_whole = isinstance(known.get(name), QuerySetRequestMixin | Whole)
            if is_whole and not _WHOLE_NUMBERS.fullmatch(str(text)):
                why = f"{str(text)[:20]!r} is not allowed; give a whole number."
                raise exceptions.ValidationError({name: [why]})
        return super().filter_queryset(request, queryset, view)

    def get_filterset_class(self, view: Any, queryset: Any = None) -> Any:
        own = getattr(view, "filterset_class", None)
        names = tuple(getattr(view, "filterset_fields", ()))
        if own is not None or not names or queryset is None:
            return own
        return _filterset_of(queryset.model, names, self.filterset_base)


@cache
def _filterset_of(model: Any, names: tuple[str, ...], base: Any) -> Any:
    """Made once: django-filter would make one for each request."""
    asked = {name: _lookups_of(model, name) for name in names}
    numbers = (
        kind for kind in FILTER_FOR_DBFIELD_DEFAULTS if issubclass(kind, models.IntegerField)
    )
    strict = {
        **{kind: {"filter_class": Whole} for kind in numbers},
        models.BooleanField: {"filter_class": TrueOrFalse},
        models.DateTimeField: {"filter_class": TimeFilter},
    }
    meta = type("Meta", (), {"model": model, "fields": asked, "filter_overrides": strict})
    made: Any = type(f"{model.__name__}Filters", (base,), {"Meta": meta})
    for one in made.base_filters.values():
        if isinstance(one, QuerySetRequestMixin):
            one.queryset = partial(within, one.queryset.model._default_manager.all())
        elif isinstance(one, IsoDateTimeFilter):
            one.extra["validators"] = [_is_kept]
    return made


def _is_kept(moment: datetime) -> None:
    """Raises ValidationError for a time outside the years that databases can store in UTC."""
    try:
        moment.astimezone(UTC)
    except OverflowError as error:
        raise ValidationError(f"{moment.isoformat()} is out of range.") from error


def _lookups_of(model: Any, path: str) -> tuple[str, ...]:
    *through, name = path.split("__")
    for step in through:
        model = model._meta.get_field(step).related_model
    column = model._meta.get_field(name)
    return next(lookups for kind, lookups in _LOOKUPS if isinstance(column, kind))


class Search(filters.SearchFilter):
    """`?q=`: every word somewhere in the columns named in `search_fields`."""

    search_param = SEARCH
    search_description = "Words, each of which is somewhere in the names that the rows show."

    def get_search_terms(self, request: Request) -> list[str]:
        text = request.query_params.get(SEARCH, "")
        if len(text) > MAX_SEARCH_LENGTH:
            why = f"It has {len(text):,} characters; at most {MAX_SEARCH_LENGTH} are searched for."
            raise exceptions.ValidationError({SEARCH: [why]})
        try:
            return list(super().get_search_terms(request))
        except serializers.ValidationError as error:
            raise exceptions.ValidationError({SEARCH: error.detail}) from error


class Ordering(filters.BaseFilterBackend):
    """`?ordering=-created_at,name`: by shown columns; empty ones last, equal ones by id."""

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        text = request.query_params.get(ORDERING)
        if text is None:
            return queryset
        columns = ordered_columns(queryset.model, view.get_serializer_class())
        order: list[Any] = []
        for word in _words(text):
            name = word.removeprefix("-")
            if name not in columns:
                raise _unknown(ORDERING, name, columns)
            column = F(columns[name])
            descends = word.startswith("-")
            order.append((column.desc if descends else column.asc)(nulls_last=True))
        return queryset.order_by(*order, "pk")

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        columns = ordered_columns(view.queryset.model, view.get_serializer_class())
        names = [f"{sign}{name}" for name in columns for sign in ("", "-")]
        return [
            {
                "name": ORDERING,
                "in": "query",
                "required": False,
                "description": "By these fields, with a minus the largest first.",
                "schema": {"type": "array", "items": {"type": "string", "enum": names}},
                "explode": False,
                "style": "form",
            }
        ]


@cache
def ordered_columns(model: type[models.Model], serializer: Any) -> dict[str, str]:
    """Names of fields that rows can be ordered by, and their columns."""
    columns = {column.name: column for column in model._meta.concrete_fields}
    shown = getattr(serializer(), "fields", {})
    return {
        name: columns[field.source].attname
        for name, field in shown.items()
        if field.source in columns
        and not field.write_only  # an order would reveal a column's values
        and not isinstance(columns[field.source], models.JSONField)
    }


@cache
def shown_fields(serializer: Any) -> tuple[str, ...]:
    """Names of a row's fields."""
    return tuple(
        name for name, field in getattr(serializer(), "fields", {}).items() if not field.write_only
    )


def wanted_fields(request: Request, serializer: Any) -> tuple[str, ...] | None:
    """The fields in `?fields=`; None: all. Raises ValidationError that names unknown ones."""
    text = request.query_params.get(FIELDS)
    if text is None:
        return None
    known, asked = shown_fields(serializer), _words(text)
    for name in asked:
        if name not in known:
            raise _unknown(FIELDS, name, known)
    return tuple(name for name in known if name in asked)


def check_parameters(
    request: Request, known: Iterable[str] | None, *, may_repeat: Container[str]
) -> None:
    """Refuse parameters that would be ignored: unknown (None: allow all), repeated or empty ones.
    An empty variable of a script must not select all rows; only a search may be empty."""
    allowed, wrong = None if known is None else frozenset(known), {}
    for name, given in request.query_params.lists():
        if allowed is not None and name not in allowed:
            names = ", ".join(sorted(allowed))
            text = f"the known ones are: {names}." if names else "there are none here."
            wrong[name] = [f"Unknown parameter; {text}"]
        elif "" in given and name != SEARCH:
            wrong[name] = ["It is empty; give a value, or leave it out."]
        elif len(given) > 1 and name not in may_repeat:
            message = "It is given more than once; give it once, several values with commas."
            wrong[name] = [message]
    if wrong:
        raise exceptions.ValidationError(wrong)


def parameters_of_list(view: Any) -> Iterable[str]:
    """Query parameters of a list of `view`."""
    yield from (*PAGING, FIELDS, ORDERING)
    if getattr(view, "search_fields", ()):
        yield SEARCH
    found: Callable[..., Any] = Filters().get_filterset_class
    filterset = found(view, view.queryset)
    yield from getattr(filterset, "base_filters", ())


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _unknown(parameter: str, name: str, known: Iterable[str]) -> exceptions.ValidationError:
    text = f"There is no field {name[:80]!r}; the known ones are: {', '.join(known)}."
    return exceptions.ValidationError({parameter: [text]})
