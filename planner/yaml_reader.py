"""Reads YAML by the core schema of YAML 1.2, within limits that hold before anything is built.

PyYAML's own loaders follow YAML 1.1, which knows numbers to the base of 60 (read in quadratic
time), dates, merge keys and twenty words for true and false. Here only its parser is used.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import yaml

MOST_VALUES = 250_000  # keys and values, each alias counted as all of its values
MOST_LEVELS = 100
LONGEST_NUMBER = 400  # characters; a float has at most 309 digits before its point

_TAG = "tag:yaml.org,2002:"
_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_KINDS: tuple[tuple[str, re.Pattern[str], Callable[[str], object]], ...] = (
    ("null", re.compile(r"null|Null|NULL|~|"), lambda _text: None),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), lambda text: text[0] in "tT"),
    ("int", _INTEGER, int),
    ("int", _OCTAL, lambda text: int(text[2:], 8)),
    ("int", _HEXADECIMAL, lambda text: int(text[2:], 16)),
    ("float", _FLOAT, float),
    ("float", _ENDLESS, lambda text: float(text.replace(".", ""))),
)
# What a writer of YAML must put in quotes to have it read as text.
NUMBER = re.compile(
    "^(?:" + "|".join(one.pattern for one in (_INTEGER, _OCTAL, _HEXADECIMAL, _FLOAT)) + ")$"
)


class _Mark(Protocol):
    """A place in the text, counted from 0; libyaml's and PyYAML's own are two classes."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class YamlRefused(ValueError):
    """Invalid YAML, or beyond the limits; the message says where and why."""


def read_yaml(text: str) -> object:
    """None, bool, int, float, str, list and dict of one YAML document; an empty one is None.

    Raises YamlRefused for what is not YAML 1.2, a key written twice or that is no scalar, merge
    keys, tags beyond the core schema's, and more than `MOST_VALUES` values or `MOST_LEVELS` levels.
    """
    try:
        parser = _Parser(text)
        try:
            return _Document(parser).value()
        finally:
            parser.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _refused(error.problem or error.context, mark) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlRefused(f"not valid YAML ({' '.join(str(error).split())}); correct it") from None


@dataclass(slots=True)
class _Open:
    """A list or a mapping that is being read; `key` waits for its value."""

    made: list[object] | dict[object, object]
    anchor: str | None
    first_value: int
    key: object = None
    has_key: bool = False

    def add(self, value: object, mark: _Mark | None) -> None:
        if isinstance(self.made, list):
            self.made.append(value)
        elif self.has_key:
            self.made[self.key] = value
            self.has_key = False
        else:
            self._take_key(value, mark)

    def _take_key(self, key: object, mark: _Mark | None) -> None:
        if not isinstance(key, str):  # nor could numbers be: theirs is a hash that can be foreseen
            raise _refused(f"it has the key {_shown(key)}, which is not text; use quotes", mark)
        if isinstance(self.made, dict) and key in self.made:
            raise _refused(f"the key {_shown(key)} appears twice", mark)
        self.key, self.has_key = key, True


@dataclass(slots=True)
class _Document:
    """One document, made of the parser's events without recursion."""

    parser: yaml.SafeLoader
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[object, int]] = field(default_factory=dict)  # value, values in it
    values: int = 0

    def value(self) -> object:
        found: list[object] = []
        for event in self._events():
            if isinstance(event, yaml.DocumentStartEvent):
                if found:
                    raise _refused("a second document begins; give one", event.start_mark)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                done = self.open.pop()
                self._keep(done.anchor, done.made, self.values - done.first_value)
                self._put(done.made, event, found)
            elif isinstance(event, yaml.AliasEvent):
                self._put(self._aliased(event), event, found)
            elif isinstance(event, yaml.ScalarEvent):
                self._count(1, event)
                scalar = _scalar(event)
                self._keep(event.anchor, scalar, 1)
                if _is_merge(event) and self._is_key:
                    raise _refused(
                        "merge keys (<<) are not read; write the keys out", event.start_mark
                    )
                self._put(scalar, event, found)
        return found[0] if found else None

    @property
    def _is_key(self) -> bool:
        return (
            bool(self.open) and isinstance(self.open[-1].made, dict) and not self.open[-1].has_key
        )

    def _events(self) -> Iterator[yaml.Event]:
        while self.parser.check_event():
            yield self.parser.get_event()  # type: ignore[no-untyped-call]

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            raise _refused(f"the tag {_shown(event.tag)} is not read", event.start_mark)
        if len(self.open) >= MOST_LEVELS:
            raise _refused(
                f"it is nested too deeply, in more than {MOST_LEVELS} levels", event.start_mark
            )
        self.open.append(_Open({} if is_mapping else [], event.anchor, self.values))
        self._count(1, event)

    def _aliased(self, event: yaml.AliasEvent) -> object:
        if event.anchor not in self.anchors:
            raise _refused(
                f"*{event.anchor} stands for nothing that was read before it", event.start_mark
            )
        value, values = self.anchors[event.anchor]
        self._count(values, event)
        return value

    def _keep(self, anchor: str | None, value: object, values: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = value, values

    def _put(self, value: object, event: yaml.Event, found: list[object]) -> None:
        if self.open:
            self.open[-1].add(value, event.start_mark)
        else:
            found.append(value)

    def _count(self, values: int, event: yaml.Event) -> None:
        self.values += values
        if self.values > MOST_VALUES:
            raise _refused(
                f"it has more than {MOST_VALUES:,} values, those that aliases stand for included; "
                "write it as JSON or in several files",
                event.start_mark,
            )


def _is_merge(event: yaml.ScalarEvent) -> bool:
    return bool(event.value == "<<" and event.implicit[0])


def _scalar(event: yaml.ScalarEvent) -> object:
    """A plain scalar by the core schema; one in quotes is text."""
    text, is_plain, tag = event.value, event.implicit[0], event.tag
    if tag in ("!", f"{_TAG}str") or (tag is None and not is_plain):
        return text
    wanted = None if tag is None else tag.removeprefix(_TAG)
    if wanted is not None and wanted not in ("null", "bool", "int", "float"):
        raise _refused(f"the tag {_shown(tag)} is not read", event.start_mark)
    for kind, pattern, read in _KINDS:
        if wanted in (None, kind) and pattern.fullmatch(text):
            if len(text) > LONGEST_NUMBER:
                raise _refused(
                    f"a number has {len(text)} characters; write one of at most {LONGEST_NUMBER}",
                    event.start_mark,
                )
            return read(text)
    if wanted is not None:
        raise _refused(f"{_shown(text)} is no {wanted}", event.start_mark)
    return text


def _refused(problem: str | None, mark: _Mark | None) -> YamlRefused:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return YamlRefused(f"{where}not valid YAML ({problem}); correct it there")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
