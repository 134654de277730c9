"""Kinds of rows that a file may declare: how each is identified, and the keys it has."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from helixweb.inventory.columns import TAG_LENGTH, columns_of
from helixweb.inventory.models import (
    Cluster,
    LanguageModel,
    Link,
    Node,
    Profile,
    RegionLink,
    SharedBandwidth,
)
from helixweb.inventory.validators import validate_tag
from planner import InvalidProblem
from planner.document import boolean, finite_number, integer, shown, text

FORMAT = "helixweb.inventory/1"


def _nothing(_: Any) -> None:
    """Does nothing: the default of `added`."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One section of a file: rows of a model, with the columns that people write. `key` names a row
    within its cluster; `more` are keys of the file that are no such columns: "tags" of a node, the
    name of a profile's "model". `renamed` says which keys are columns of another name.

    `added` is called with the new rows of one cluster. A cluster that `clusters` leaves out has no
    such section in a file.
    """

    section: str
    row: type[models.Model]
    key: tuple[str, ...] = ("name",)
    more: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    added: Callable[[Sequence[Any]], None] = _nothing
    clusters: Callable[[], "models.QuerySet[Any]"] = Cluster.unscoped.all

    @property
    def label(self) -> str:
        """The name of a row of this kind in messages."""
        return str(self.row._meta.verbose_name)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys that a row of a file may have."""
        names = {column: key for key, column in self.renamed.items()}
        columns = [names.get(column, column) for column in columns_of(self.row)]
        return tuple(dict.fromkeys((*self.key, *columns, *self.more)))

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Keys that a new row must have."""
        return tuple(
            name
            for name in self.keys
            if name != "tags"
            and not (column := self._column(name)).has_default()
            and not (column.null or column.blank)
        )

    def column(self, key: str) -> str:
        return self.renamed.get(key, key)

    def lookup(self, key: str) -> str:
        """The column path of the key in queries."""
        return "model__name" if key == "model" else self.column(key)

    def may_be_empty(self, key: str) -> bool:
        """Whether no value is a value of it."""
        return key == "tags" or (column := self._column(key)).null or column.blank

    def is_number(self, key: str) -> bool:
        return key != "tags" and isinstance(self._column(key), _NUMBERS)

    def clean(self, key: str, value: Any) -> Any:
        """The value of a key as a row stores it. Raises ValidationError, InvalidProblem."""
        if key == "tags":
            return _clean_tags(value)
        if key == "model":
            return text(value, key)
        column = self._column(key)
        if value is None and not column.null:
            raise ValidationError("It is empty; give a value or leave the key out.")
        if value is None:
            return None
        if isinstance(column, models.JSONField):
            for validate in column.validators:  # they say more of an empty list than Django does
                validate(value)
        else:
            value = next(read for kind, read in _READERS if isinstance(column, kind))(value, key)
        if isinstance(value, str) and any(
            each == "\0" or unicodedata.category(each) == "Cs" for each in value
        ):
            raise ValidationError(
                f"{value[:80]!r} contains a control character or a lone surrogate, which no text "
                "has; remove it."
            )
        return column.clean(value, None)

    def _column(self, key: str) -> "models.Field[Any, Any]":
        found = self.row._meta.get_field(self.column(key))
        assert isinstance(found, models.Field)  # noqa: S101 - a column, no relation
        return found


def name_of(key: tuple[str, ...]) -> str:
    """A row's key as readable text."""
    return " -> ".join(key)


_NUMBERS = (models.FloatField, models.IntegerField)
# What reads the value of a column in a file: the first that fits.
_READERS: tuple[tuple[type[Any], Callable[[object, str], Any]], ...] = (
    (models.BooleanField, boolean),
    (models.IntegerField, integer),
    (models.FloatField, finite_number),
    (models.Field, text),
)


def _clean_tags(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise ValidationError(f"{shown(value)} is no list of tags; give one, such as [fast, lab].")
    for tag in value:
        validate_tag(tag)
        if len(tag) > TAG_LENGTH:
            raise ValidationError(f"Tag {tag[:40]!r} has more than {TAG_LENGTH} characters.")
    return sorted(set(value))


_ENDS = ("source", "target")
MODELS = Kind(section="models", row=LanguageModel)
CLUSTERS = Kind(section="clusters", row=Cluster)
PROFILES = Kind(section="profiles", row=Profile, key=("model", "name"), more=("model",))
NODES = Kind(section="nodes", row=Node, more=("tags",), renamed={"gpus": "declared_gpus"})
REGION_LINKS = Kind(section="region_links", row=RegionLink, key=_ENDS)
LINKS = Kind(section="links", row=Link, key=_ENDS)
SHARED = Kind(section="shared_bandwidths", row=SharedBandwidth)

# In the order in which rows must be made; they go in the opposite one. Apps above add theirs.
OF_CLUSTER = [PROFILES, NODES, REGION_LINKS, LINKS, SHARED]
ALL = [MODELS, CLUSTERS, *OF_CLUSTER]
SECTIONS = [kind.section for kind in ALL]


def register(kind: Kind) -> None:
    """Add a kind that files may declare for each cluster. Call it in `AppConfig.ready`."""
    OF_CLUSTER.append(kind)
    ALL.append(kind)
    SECTIONS.append(kind.section)


def cleaned(kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
    """Clean values of one row of a file. Raises InvalidProblem for the first wrong key."""
    for key in values:
        if key not in kind.keys:
            raise InvalidProblem(
                f"{shown(key)} is not a key of one {kind.label}; remove it or use one of: "
                f"{', '.join(kind.keys)}."
            )
    missing = [name for name in kind.key if name not in values]
    if missing:
        raise InvalidProblem(f"{missing[0]} is missing; add it.")
    clean = {}
    for key, value in values.items():
        try:
            clean[key] = kind.clean(key, value)
        except ValidationError as error:
            raise InvalidProblem(f"{key}: {error.messages[0]}") from error
    return clean
