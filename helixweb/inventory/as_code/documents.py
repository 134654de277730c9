"""What a file may declare: kinds of rows, how each is identified, and the keys it has; and the
reader of `helixweb.inventory/1` documents, with the lines of errors."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import yaml
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
from planner.document import Section, boolean, finite_number, integer, parse_document, shown, text

FORMAT = "helixweb.inventory/1"
_NUMBERS = (models.FloatField, models.IntegerField)
# What reads the value of a column in a file: the first that fits.
_READERS: tuple[tuple[type[Any], Callable[[object, str], Any]], ...] = (
    (models.BooleanField, boolean),
    (models.IntegerField, integer),
    (models.FloatField, finite_number),
    (models.Field, text),
)
_ENDS = ("source", "target")
_INDEX = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Of one file; the body of a request is bounded anyway.
MOST_ERRORS = 100
Key = tuple[str, ...]


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


def _clean_tags(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise ValidationError(f"{shown(value)} is no list of tags; give one, such as [fast, lab].")
    for tag in value:
        validate_tag(tag)
        if len(tag) > TAG_LENGTH:
            raise ValidationError(f"Tag {tag[:40]!r} has more than {TAG_LENGTH} characters.")
    return sorted(set(value))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A row that a file declares. `place` is its readable position in the file."""

    values: Mapping[str, Any]
    place: str


@dataclass(slots=True)
class Errors:
    """Error messages by place; the first hundred are stored, all are counted."""

    told: dict[str, list[str]] = field(default_factory=dict)
    count: int = 0

    def add(self, place: str, message: str) -> None:
        self.count += 1
        if len(self.told) < MOST_ERRORS or place in self.told:
            self.told.setdefault(place, []).append(message)

    @property
    def left_out(self) -> int:
        return self.count - sum(len(messages) for messages in self.told.values())


@dataclass(slots=True)
class Declaration:
    """A whole file. A section that it does not have says nothing about its rows.

    `sections` are by kind and cluster, which is "" for models and clusters.
    """

    sections: dict[tuple[str, str], dict[Key, Declared]] = field(default_factory=dict)
    errors: Errors = field(default_factory=Errors)

    def open(self, kind: Kind, cluster: str = "") -> dict[Key, Declared]:
        """The file has this section, perhaps with no row in it."""
        return self.sections.setdefault((kind.section, cluster), {})

    def add(self, kind: Kind, values: Mapping[str, Any], *, place: str, cluster: str = "") -> None:
        """Add a row as the file has it; its errors are added to `errors`."""
        try:
            clean = cleaned(kind, values)
        except InvalidProblem as error:
            self.errors.add(place, str(error))
            return
        rows = self.open(kind, cluster)
        key = tuple(str(clean[name]) for name in kind.key)
        if key in rows:
            self.errors.add(
                place,
                f"{kind.label} {name_of(key)!r} is already at {rows[key].place}; keep one.",
            )
            return
        rows[key] = Declared(values=clean, place=place)

    def add_to(self, kind: Kind, key: Key, values: Mapping[str, Any]) -> None:
        """Add values to a declared row, where the file has none."""
        rows = self.open(kind)
        rows[key] = replace(rows[key], values={**values, **rows[key].values})

    def has(self, kind: Kind, cluster: str) -> bool:
        return (kind.section, cluster) in self.sections

    def rows(self, kind: Kind, cluster: str = "") -> Mapping[Key, Declared]:
        return self.sections.get((kind.section, cluster), {})

    def clusters(self) -> list[str]:
        """Names of the clusters in the file."""
        own = [key[0] for key in self.rows(CLUSTERS)]
        return list(dict.fromkeys([*own, *(name for _, name in self.sections if name)]))


def read_text(content: bytes) -> Declaration:
    """The declaration of a file in YAML. Raises InvalidProblem."""
    text = decoded(content)
    declaration = read_document(parse_document(text, name_hint="text.yaml"))
    messages_at = declaration.errors.told
    lines = _lines(text, list(messages_at)) if messages_at else {}
    declaration.errors.told = {
        f"{place} (line {lines[place]})" if place in lines else place: messages
        for place, messages in messages_at.items()
    }
    return declaration


def read_document(document: object) -> Declaration:
    """Read a parsed document. Raises InvalidProblem for a wrong outline; errors of rows are
    collected in `errors`."""
    top = Section.at(document, "")
    top.allow_only("format", "models", "clusters")
    if (given := top.values.get("format")) != FORMAT:
        raise InvalidProblem(f"format is {shown(given)}; an inventory begins with format: {FORMAT}")
    declaration = Declaration()
    if top.has("models"):
        _rows(declaration, MODELS, top, "models")
    if top.has("clusters"):
        declaration.open(CLUSTERS)
        for index, cluster in enumerate(top.items("clusters")):
            _cluster(declaration, cluster, f"clusters[{index}]")
    return declaration


def decoded(content: bytes) -> str:
    """UTF-8, with or without a byte order mark. Raises InvalidProblem naming what it is instead."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidProblem("The file is UTF-16; save it as UTF-8.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidProblem(
            f"Line {line} is not UTF-8 (byte 0x{content[error.start]:02x}; perhaps the file is "
            "Latin-1 or Windows-1252); save it as UTF-8."
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidProblem(f"Line {line} has a null character; save the file as UTF-8 text.")
    return text


def _cluster(declaration: Declaration, given: object, path: str) -> None:
    sections = {kind.section: kind for kind in OF_CLUSTER}
    try:
        found = Section.at(given, path)
        found.allow_only(*CLUSTERS.keys, *sections)
    except InvalidProblem as error:
        declaration.errors.add(path, str(error))
        return
    own = {key: value for key, value in found.values.items() if key not in sections}
    declaration.add(CLUSTERS, own, place=path)
    name = found.values.get("name")
    if not isinstance(name, str) or not name:
        return
    for section, kind in sections.items():
        if found.has(section):
            _rows(declaration, kind, found, section, cluster=name)


def _rows(
    declaration: Declaration, kind: Kind, found: Section, section: str, cluster: str = ""
) -> None:
    declaration.open(kind, cluster)
    for index, row in enumerate(found.items(section)):
        place = f"{found.path_of(section)}[{index}]"
        try:
            declaration.add(kind, Section.at(row, place).values, place=place, cluster=cluster)
        except InvalidProblem as error:
            declaration.errors.add(place, str(error))


def _lines(text: str, places: list[str]) -> dict[str, int]:
    """The line of each place such as clusters[0].nodes[3]; read again only when it is needed."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError:  # JSON that YAML reads otherwise
        return {}
    found = {}
    for place in places:
        node = root
        for key, index in _INDEX.findall(place):
            node = _child(node, key, index)
        if node is not None:
            found[place] = node.start_mark.line + 1
    return found


def _child(node: Any, key: str, index: str) -> Any:
    if isinstance(node, yaml.SequenceNode) and index:
        return node.value[int(index)] if int(index) < len(node.value) else None
    if isinstance(node, yaml.MappingNode) and key:
        return next((child for name, child in node.value if name.value == key), None)
    return None
