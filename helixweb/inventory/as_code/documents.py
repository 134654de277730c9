"""What a file declares; reads `helixweb.inventory/1` documents, and names the lines of errors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from django.utils.translation import gettext as _

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
from planner.document import parse_document, shown

_INDEX = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Of one file; the body of a request is bounded anyway.
MOST_ERRORS = 100
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One row. `place` is where in the file it stands, as people find it."""

    values: Mapping[str, Any]
    place: str


@dataclass(slots=True)
class Errors:
    """By place what is wrong there; the first hundred are kept, all are counted."""

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
        """One row as the file has it; what is wrong with it goes to `errors`."""
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
                _("%(kind)s %(name)s is already at %(place)s; keep one.")
                % {"kind": kind.label, "name": repr(name_of(key)), "place": rows[key].place},
            )
            return
        rows[key] = Declared(values=clean, place=place)

    def add_to(self, kind: Kind, key: Key, values: Mapping[str, Any]) -> None:
        """What was found of a declared row, where the file says nothing."""
        rows = self.open(kind)
        rows[key] = replace(rows[key], values={**values, **rows[key].values})

    def has(self, kind: Kind, cluster: str) -> bool:
        return (kind.section, cluster) in self.sections

    def rows(self, kind: Kind, cluster: str = "") -> Mapping[Key, Declared]:
        return self.sections.get((kind.section, cluster), {})

    def clusters(self) -> list[str]:
        """Of which the file says anything."""
        own = [key[0] for key in self.rows(CLUSTERS)]
        return list(dict.fromkeys([*own, *(name for _, name in self.sections if name)]))


def read_text(content: bytes) -> Declaration:
    """The declaration of a file in YAML. Raises InvalidProblem."""
    text = decoded(content)
    declaration = read_document(parse_document(text, name_hint="text.yaml"))
    told = declaration.errors.told
    lines = _lines(text, list(told)) if told else {}
    declaration.errors.told = {
        f"{place} (line {lines[place]})" if place in lines else place: messages
        for place, messages in told.items()
    }
    return declaration


def read_document(document: object) -> Declaration:
    """Of a parsed one. Raises InvalidProblem where its outline is wrong; rows go to `errors`."""
    top = _mapping(document, "", ("format", "models", "clusters"))
    if top.get("format") != FORMAT:
        raise InvalidProblem(
            _("format is %(value)s; an inventory begins with format: %(wanted)s")
            % {"value": shown(top.get("format")), "wanted": FORMAT}
        )
    declaration = Declaration()
    if "models" in top:
        _rows(declaration, MODELS, top["models"], "models")
    if "clusters" in top:
        declaration.open(CLUSTERS)
        for index, given in enumerate(_list(top["clusters"], "clusters")):
            _cluster(declaration, given, f"clusters[{index}]")
    return declaration


def decoded(content: bytes) -> str:
    """UTF-8, with or without a byte order mark. Raises InvalidProblem naming what it is instead."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidProblem(_("The file is UTF-16; save it as UTF-8."))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = f"0x{content[error.start]:02x}"
        raise InvalidProblem(
            _(
                "Line %(line)s is not UTF-8 (byte %(byte)s; perhaps the file is Latin-1 or "
                "Windows-1252); save it as UTF-8."
            )
            % {"line": line, "byte": byte}
        ) from error
    if "\0" in text:
        raise InvalidProblem(
            _("Line %(line)s has a null character; save the file as UTF-8 text.")
            % {"line": text.count("\n", 0, text.index("\0")) + 1}
        )
    return text


def _cluster(declaration: Declaration, given: object, path: str) -> None:
    sections = {kind.section: kind for kind in OF_CLUSTER}
    try:
        values = _mapping(given, path, (*CLUSTERS.keys, *sections))
    except InvalidProblem as error:
        declaration.errors.add(path, str(error))
        return
    own = {key: value for key, value in values.items() if key not in sections}
    declaration.add(CLUSTERS, own, place=path)
    name = values.get("name")
    if not isinstance(name, str) or not name:
        return
    for section, kind in sections.items():
        if section in values:
            declaration.open(kind, name)
            _rows(declaration, kind, values[section], f"{path}.{section}", cluster=name)


def _rows(
    declaration: Declaration, kind: Kind, given: object, path: str, cluster: str = ""
) -> None:
    declaration.open(kind, cluster)
    for index, row in enumerate(_list(given, path)):
        place = f"{path}[{index}]"
        if isinstance(row, dict) and all(isinstance(key, str) for key in row):
            declaration.add(kind, row, place=place, cluster=cluster)
        else:
            declaration.errors.add(
                place, _("%(row)s is no %(kind)s.") % {"row": shown(row), "kind": kind.label}
            )


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise InvalidProblem(
            _("%(path)s is %(value)s; it must be a list") % {"path": path, "value": shown(value)}
        )
    return value


def _mapping(value: object, path: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidProblem(
            _("%(path)s is %(value)s; it must be a mapping of keys to values")
            % {"path": path or _("the document"), "value": shown(value)}
        )
    unknown = [key for key in value if key not in known]
    if unknown:
        where = f"{path}.{unknown[0]}" if path else unknown[0]
        raise InvalidProblem(
            _("%(key)s is not a key of the format; remove it or use one of: %(known)s")
            % {"key": where, "known": ", ".join(known)}
        )
    return value


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
