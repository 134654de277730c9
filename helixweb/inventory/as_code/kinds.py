"""What a file may tell: kinds of rows, how each is known again, and the keys it has."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext as _

from helixweb.inventory.models import (
    TAG_LENGTH,
    Cluster,
    LanguageModel,
    Link,
    Node,
    Profile,
    RegionLink,
    SharedBandwidth,
    columns_of,
)
from helixweb.inventory.validators import validate_tag
from planner.document import shown
from planner.domain.errors import InvalidProblem

FORMAT = "helixweb.inventory/1"
# Values of files are kept, as names come again and again; a text may be as long as a file.
LONGEST_KEPT = 200
Values = Mapping[str, Any]
# Checks a value as a file has it, gives it as a row has it. Raises ValidationError.
Clean = Callable[[Any], Any]


def _nothing(_: Any) -> None:
    """Of most kinds there is no more to see to."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One section of a file. `key` names a row within its cluster; `renamed` are keys of a file
    whose column is called otherwise.

    `check` looks at a whole row as it will be, and raises InvalidProblem. `added` is called with
    the new rows of one cluster. A cluster that `clusters` leaves out has no such section in a file.
    """

    section: str
    label: str
    row: type[models.Model]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    renamed: Mapping[str, str]
    extra: Mapping[str, Clean]
    check: Callable[[Values], None] = _nothing
    added: Callable[[Sequence[Any]], None] = _nothing
    clusters: Callable[[], "models.QuerySet[Any]"] = Cluster.objects.all

    @property
    def keys(self) -> tuple[str, ...]:
        """What a row of a file may say."""
        return (*self.columns, *self.extra)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """What a new row must say."""
        return tuple(
            name
            for name in self.columns
            if not (field := self._field(name)).has_default() and not field.null and not field.blank
        ) + (("model",) if "model" in self.extra else ())

    def column(self, key: str) -> str:
        return self.renamed.get(key, key)

    def may_be_empty(self, key: str) -> bool:
        """Whether no value is a value of it."""
        if key in self.extra:
            return True
        field = self._field(key)
        return field.null or field.blank

    def clean(self, key: str, value: Any) -> Any:
        """As a row has it. Raises ValidationError naming value and remedy."""
        if key in self.extra:
            return self.extra[key](value)
        field = self._field(key)
        if value is None:
            if field.null:
                return None
            raise ValidationError(_("It is empty; give a value or leave the key out."))
        if isinstance(value, str) and len(value) > LONGEST_KEPT:
            return _clean_plain.__wrapped__(field, "str", value)
        if isinstance(value, str | int | float):
            return _clean_plain(field, type(value).__name__, value)
        if isinstance(field, models.JSONField):
            for validate in field.validators:  # they say more of an empty list than Django does
                validate(value)
            return field.clean(value, None)
        raise ValidationError(_wrong_type(field, value))

    def _field(self, key: str) -> "models.Field[Any, Any]":
        field = self.row._meta.get_field(self.column(key))
        assert isinstance(field, models.Field)  # noqa: S101 - a column, no relation
        return field


def name_of(key: tuple[str, ...]) -> str:
    """How people read a row's key."""
    return " -> ".join(key)


@lru_cache(maxsize=65_536)
def _clean_plain(field: "models.Field[Any, Any]", kind: str, value: Any) -> Any:
    """Names and numbers come again and again in a long file. `kind` keeps 1 and True apart."""
    is_number, is_truth = kind in ("int", "float"), kind == "bool"
    wants_number = isinstance(field, models.FloatField | models.IntegerField)
    wants_truth = isinstance(field, models.BooleanField)
    if is_truth is not wants_truth or is_number is not wants_number:
        raise ValidationError(_wrong_type(field, value))
    if isinstance(value, str) and any(c == "\0" or unicodedata.category(c) == "Cs" for c in value):
        raise ValidationError(
            _("%(value)s contains a character that no text has; remove it.")
            % {"value": repr(value[:80])}
        )
    try:
        if isinstance(field, models.IntegerField) and not float(value).is_integer():
            raise ValidationError(_("%(value)s is no whole number.") % {"value": value})
        return field.clean(value, None)
    except OverflowError as error:
        raise ValidationError(_("The number is too large.")) from error


def _wrong_type(field: "models.Field[Any, Any]", value: Any) -> str:
    if isinstance(field, models.BooleanField):
        wanted = _("true or false")
    elif isinstance(field, models.FloatField | models.IntegerField):
        wanted = _("a number")
    else:
        wanted = _("text (in quotes if YAML reads it otherwise)")
    return _("%(value)s is not allowed; give %(wanted)s.") % {
        "value": shown(value),
        "wanted": wanted,
    }


def _clean_tags(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(tag, str) for tag in value):
        raise ValidationError(
            _("%(value)s is no list of tags; give one, such as [fast, lab].")
            % {"value": shown(value)}
        )
    for tag in value:
        validate_tag(tag)
        if len(tag) > TAG_LENGTH:
            raise ValidationError(
                _("Tag %(tag)s has more than %(most)s characters.")
                % {"tag": repr(tag[:40]), "most": TAG_LENGTH}
            )
    return tuple(sorted(set(value)))


def _clean_model(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValidationError(
            _("%(value)s is no name of a model; give one of the site's or of the file's.")
            % {"value": shown(value)}
        )
    return value


def _kind(
    section: str,
    label: str,
    row: type[models.Model],
    key: tuple[str, ...],
    *,
    renamed: Mapping[str, str] | None = None,
    extra: Mapping[str, Clean] | None = None,
) -> Kind:
    names = {column: key for key, column in (renamed or {}).items()}
    return Kind(
        section=section,
        label=label,
        row=row,
        key=key,
        columns=tuple(names.get(column, column) for column in columns_of(row)),
        renamed=renamed or {},
        extra=extra or {},
    )


MODELS = _kind("models", "model", LanguageModel, ("name",))
CLUSTERS = _kind("clusters", "cluster", Cluster, ("name",))
PROFILES = _kind("profiles", "profile", Profile, ("model", "name"), extra={"model": _clean_model})
NODES = _kind(
    "nodes", "node", Node, ("name",), renamed={"gpus": "declared_gpus"}, extra={"tags": _clean_tags}
)
REGION_LINKS = _kind("region_links", "region link", RegionLink, ("source", "target"))
LINKS = _kind("links", "link", Link, ("source", "target"))
SHARED = _kind("shared_bandwidths", "shared bandwidth", SharedBandwidth, ("name",))

# In the order in which rows must be made; they go in the opposite one. Apps above add theirs.
OF_CLUSTER = [PROFILES, NODES, REGION_LINKS, LINKS, SHARED]
ALL = [MODELS, CLUSTERS, *OF_CLUSTER]
SECTIONS = [kind.section for kind in ALL]


def register(kind: Kind) -> None:
    """Of each cluster a file may tell that, too. Call it while apps get ready."""
    OF_CLUSTER.append(kind)
    ALL.append(kind)
    SECTIONS.append(kind.section)


def cleaned(kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of one row of a file. Raises InvalidProblem for the first key that is wrong."""
    for key in values:
        if key not in kind.keys:
            raise InvalidProblem(
                _("%(key)s is not a key of one %(kind)s; remove it or use one of: %(known)s.")
                % {"key": shown(key), "kind": kind.label, "known": ", ".join(kind.keys)}
            )
    missing = [name for name in kind.key if name not in values]
    if missing:
        raise InvalidProblem(_("%(key)s is missing; add it.") % {"key": missing[0]})
    clean = {}
    for key, value in values.items():
        try:
            clean[key] = kind.clean(key, value)
        except ValidationError as error:
            raise InvalidProblem(f"{key}: {error.messages[0]}") from error
    return clean
