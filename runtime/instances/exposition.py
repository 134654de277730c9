"""Prometheus' text format, as an engine's /metrics answers it; strict.

https://prometheus.io/docs/instrumenting/exposition_formats/ (0.0.4), of which values and labels are
read, comments and times are not.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_PAGE_BYTES = 4 << 20

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(,|$)')
_LINE = re.compile(
    rf'({_NAME})[ \t]*(?:\{{((?:[^"}}]|"(?:[^"\\]|\\.)*")*)\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*'
)
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class NoExposition(Exception):
    """Text that is none of Prometheus'; the message says which line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line's value."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_exposition(page: str) -> tuple[Sample, ...]:
    """All samples in order. Raises NoExposition."""
    samples = []
    for number, line in enumerate(page.splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _LINE.fullmatch(text)
        if found is None:
            raise NoExposition(f"line {number} is no metric: {text[:80]!r}")
        name, labels, value = found.groups()
        try:
            samples.append(
                Sample(name=name, labels=_labels(labels or "", number), value=float(value))
            )
        except ValueError as error:
            raise NoExposition(f"line {number}: {value[:80]!r} is no number") from error
    return tuple(samples)


def _labels(text: str, number: int) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        found = _LABEL.match(text, position)
        if found is None:
            raise NoExposition(f"line {number} has broken labels: {text[:80]!r}")
        labels[found[1]] = re.sub(
            r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), found[2]
        )
        position = found.end()
    return labels
