"""Prometheus' text format, as an engine's /metrics answers it; strict.

https://prometheus.io/docs/instrumenting/exposition_formats/ (0.0.4), of which values and labels are
read, comments and times are not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

MAX_PAGE_BYTES = 4 << 20
MOST_OF_A_NAME = 1024  # lines; no server has so many engines

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(,|$)')
_LINE = re.compile(
    rf'({_NAME})[ \t]*(?:\{{((?:[^"}}]|"(?:[^"\\]|\\.)*")*)\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*'
)
_BEGINNING = 64 * 1024
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class NoExposition(Exception):
    """Text that is none of Prometheus'; the message says which line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line's value."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples_of(page: str, names: Iterable[str]) -> tuple[Sample, ...]:
    """Those of these names, one name after the other; no other line is looked at, so that a page of
    megabytes takes no time, unless there is none of them. Raises NoExposition."""
    found = [
        _sample(page[begin : end if (end := page.find("\n", begin)) >= 0 else None], begin, page)
        for name in names
        for begin in _beginnings(page, name)
    ]
    if not found:
        _check_first(page)
    return tuple(found)


def _beginnings(page: str, name: str) -> Iterator[int]:
    """Where a line begins with the name."""
    count, begin = 0, page.find(name)
    while begin >= 0:
        end = begin + len(name)
        if _begins_line(page, begin) and page[end : end + 1] in ("{", " ", "\t"):
            count += 1
            if count > MOST_OF_A_NAME:
                raise NoExposition(f"more than {MOST_OF_A_NAME} lines of {name}")
            yield begin
        begin = page.find(name, end)


def _begins_line(page: str, at: int) -> bool:
    while at > 0 and page[at - 1] in " \t":
        at -= 1
    return at == 0 or page[at - 1] == "\n"


def _check_first(page: str) -> None:
    """Whether it is such a page at all."""
    for number, line in enumerate(page[:_BEGINNING].splitlines(), start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            _sample(text, number)
            return


def _sample(line: str, place: int, page: str = "") -> Sample:
    """`place`: the line's number or, with `page`, where in that it begins. Raises NoExposition."""
    text = line.strip()
    found = _LINE.fullmatch(text)
    try:
        if found is None:
            raise NoExposition(f"is no metric: {text[:80]!r}")
        name, labels, value = found.groups()
        return Sample(name=name, labels=_labels(labels or ""), value=_number(value))
    except NoExposition as error:
        number = page.count("\n", 0, place) + 1 if page else place
        raise NoExposition(f"line {number} {error}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise NoExposition(f"has {text[:80]!r}, which is no number") from error


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        found = _LABEL.match(text, position)
        if found is None:
            raise NoExposition(f"has broken labels: {text[:80]!r}")
        labels[found[1]] = re.sub(
            r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), found[2]
        )
        position = found.end()
    return labels
