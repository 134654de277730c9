"""Rules about single nodes as people type them: one node a line.

A node's name may hold commas and equals signs, so lines end at the last `=`.
"""

import re
from collections.abc import Mapping

from planner.domain.errors import PlannerError
from planner.domain.placement import LayerRange
from planner.domain.rules import InvalidRules

_PIN = re.compile(r"(.+)=\s*(\d{1,6})\s*:\s*(\d{1,6})")
_LIMIT = re.compile(r"(.+)=\s*(\d{1,6})")


def names_from_lines(text: str) -> frozenset[str]:
    """Every line a node."""
    return frozenset(_lines(text))


def pins_from_lines(text: str) -> dict[str, LayerRange]:
    """`node=first:end` a line. Raises InvalidRules naming the line."""
    pins: dict[str, LayerRange] = {}
    for line in _lines(text):
        match = _PIN.fullmatch(line)
        if match is None:
            raise InvalidRules(f"{line!r} is no pin; write NODE=FIRST:END, for example gpu-1=0:8")
        name = match[1].strip()
        _check_new(name, pins)
        try:
            pins[name] = LayerRange(first=int(match[2]), end=int(match[3]))
        except PlannerError as error:
            raise InvalidRules(f"{line!r}: {error}") from error
    return pins


def limits_from_lines(text: str) -> dict[str, int]:
    """`node=layers` a line. Raises InvalidRules naming the line."""
    limits: dict[str, int] = {}
    for line in _lines(text):
        match = _LIMIT.fullmatch(line)
        if match is None:
            raise InvalidRules(f"{line!r} is no limit; write NODE=LAYERS, for example gpu-1=8")
        name = match[1].strip()
        _check_new(name, limits)
        limits[name] = int(match[2])
    return limits


def pins_as_lines(pins: Mapping[str, LayerRange]) -> str:
    """What `pins_from_lines` reads."""
    return "\n".join(f"{name}={held.first}:{held.end}" for name, held in sorted(pins.items()))


def limits_as_lines(limits: Mapping[str, int]) -> str:
    """What `limits_from_lines` reads."""
    return "\n".join(f"{name}={layers}" for name, layers in sorted(limits.items()))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _check_new(name: str, known: Mapping[str, object]) -> None:
    if name in known:
        raise InvalidRules(f"node {name!r} has two lines; keep one")
