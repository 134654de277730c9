"""Reads YAML by the core schema of YAML 1.2, within limits that hold before anything is built.

PyYAML's own loaders follow YAML 1.1, which knows numbers to the base of 60 (read in quadratic
time), dates, merge keys and twenty words for true and false. Here only its parser is used.
"""

import re
from collections.abc import Callable
from typing import Any, Protocol

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
            return _Reader(parser).document()
        finally:
            parser.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _refused(error.problem or error.context, mark) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlRefused(f"not valid YAML ({' '.join(str(error).split())}); correct it") from None


class _Reader:
    """Makes values of the parser's events."""

    def __init__(self, parser: yaml.SafeLoader) -> None:
        self._parser = parser
        self._anchors: dict[str, tuple[object, int]] = {}  # value, values in it
        self._values = 0

    def document(self) -> object:
        """The value of the only document."""
        found: list[object] = []
        while self._parser.check_event():
            event = self._event()
            if isinstance(event, yaml.DocumentStartEvent) and found:
                raise _refused("a second document begins; give one", event.start_mark)
            if isinstance(event, yaml.NodeEvent):
                found.append(self._value(event, level=1))
        return found[0] if found else None

    def _event(self) -> Any:
        return self._parser.get_event()  # type: ignore[no-untyped-call]

    def _value(self, event: Any, *, level: int) -> object:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        before = self._values
        if isinstance(event, yaml.ScalarEvent):
            self._count(1, event)
            made = _scalar(event)
        else:
            made = self._collection(event, level=level)
        if event.anchor is not None:
            self._anchors[event.anchor] = made, self._values - before
        return made

    def _collection(
        self, event: yaml.CollectionStartEvent, *, level: int
    ) -> list[object] | dict[str, object]:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            raise _refused(f"the tag {_shown(event.tag)} is not read", event.start_mark)
        if level > MOST_LEVELS:
            raise _refused(
                f"it is nested too deeply, in more than {MOST_LEVELS} levels", event.start_mark
            )
        self._count(1, event)
        if is_mapping:
            return self._mapping(level=level)
        items = []
        while not isinstance(item := self._event(), yaml.SequenceEndEvent):
            items.append(self._value(item, level=level + 1))
        return items

    def _mapping(self, *, level: int) -> dict[str, object]:
        made: dict[str, object] = {}
        while not isinstance(event := self._event(), yaml.MappingEndEvent):
            key = self._value(event, level=level + 1)
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                raise _refused("merge keys (<<) are not read; write the keys out", event.start_mark)
            if not isinstance(key, str):  # hashes of numbers could be foreseen
                raise _refused(
                    f"it has the key {_shown(key)}, which is not text; use quotes", event.start_mark
                )
            if key in made:
                raise _refused(f"the key {_shown(key)} appears twice", event.start_mark)
            made[key] = self._value(self._event(), level=level + 1)
        return made

    def _aliased(self, event: yaml.AliasEvent) -> object:
        if event.anchor not in self._anchors:
            raise _refused(
                f"*{event.anchor} stands for nothing that was read before it", event.start_mark
            )
        value, values = self._anchors[event.anchor]
        self._count(values, event)
        return value

    def _count(self, values: int, event: yaml.Event) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise _refused(
                f"it has more than {MOST_VALUES:,} values, those that aliases stand for included; "
                "write it as JSON or in several files",
                event.start_mark,
            )


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
