"""Reads `helixweb.inventory/1` documents into declarations, with the lines of errors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from helixweb.inventory.as_code.kinds import (
    CLUSTERS,
    FORMAT,
    MODELS,
    OF_CLUSTER,
    Kind,
    cleaned,
    name_of,
)
from planner import InvalidProblem
from planner.document import Section, parse_document, shown

_INDEX = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Of one file; the body of a request is bounded anyway.
MOST_ERRORS = 100
Key = tuple[str, ...]


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
