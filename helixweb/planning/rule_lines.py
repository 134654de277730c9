"""Rules about single nodes, and changes to a cluster, as people type them: one thing a line.

A node's name may hold commas and equals signs, so lines end at the last `=`.
"""

import re
from collections.abc import Mapping

from django.utils.translation import gettext as _

from helixweb.planning.what_if import AddedNodes
from planner.domain.cluster import Link
from planner.domain.errors import PlannerError
from planner.domain.placement import LayerRange
from planner.domain.rules import InvalidRules
from planner.units import BITS_PER_BYTE

BITS_PER_GBIT, MS_PER_S = 1e9, 1e3

_PIN = re.compile(r"(.+)=\s*(\d{1,6})\s*:\s*(\d{1,6})")
_LIMIT = re.compile(r"(.+)=\s*(\d{1,6})")
_ADDED = re.compile(r"(\d{1,4})\s*x\s+(.+)\s+in\s+(.+)")
_UPGRADE = re.compile(r"(.+)=(.+)")
_NUMBER = r"(\d+(?:\.\d+)?)"
_LINK = re.compile(rf"(.+)>(.+)=\s*{_NUMBER}\s*Gbit/s\s*,\s*{_NUMBER}\s*ms")


def names_from_lines(text: str) -> frozenset[str]:
    """Every line a node."""
    return frozenset(_lines(text))


def pins_from_lines(text: str) -> dict[str, LayerRange]:
    """`node=first:end` a line. Raises InvalidRules naming the line."""
    pins: dict[str, LayerRange] = {}
    for line in _lines(text):
        match = _PIN.fullmatch(line)
        if match is None:
            raise InvalidRules(
                _("%(line)s is no pin; write NODE=FIRST:END, for example gpu-1=0:8")
                % {"line": repr(line)}
            )
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
            raise InvalidRules(
                _("%(line)s is no limit; write NODE=LAYERS, for example gpu-1=8")
                % {"line": repr(line)}
            )
        name = match[1].strip()
        _check_new(name, limits)
        limits[name] = int(match[2])
    return limits


def added_from_lines(text: str) -> tuple[AddedNodes, ...]:
    """`COUNT x PROFILE in REGION` a line. Raises InvalidRules naming the line."""
    added = []
    for line in _lines(text):
        match = _ADDED.fullmatch(line)
        if match is None or int(match[1]) < 1:
            raise InvalidRules(
                _(
                    "%(line)s adds no nodes; write COUNT x PROFILE in REGION, for example 2 "
                    "x T4 in eu"
                )
                % {"line": repr(line)}
            )
        added.append(
            AddedNodes(count=int(match[1]), profile=match[2].strip(), region=match[3].strip())
        )
    return tuple(added)


def upgrades_from_lines(text: str) -> dict[str, str]:
    """`node=profile` a line. Raises InvalidRules naming the line."""
    upgrades: dict[str, str] = {}
    for line in _lines(text):
        match = _UPGRADE.fullmatch(line)
        if match is None:
            raise InvalidRules(
                _("%(line)s is no upgrade; write NODE=PROFILE, for example t4-1=A100")
                % {"line": repr(line)}
            )
        name = match[1].strip()
        _check_new(name, upgrades)
        upgrades[name] = match[2].strip()
    return upgrades


def links_from_lines(text: str) -> tuple[Link, ...]:
    """`source > target = 10 Gbit/s, 5 ms` a line. Raises InvalidRules naming the line."""
    links: dict[str, Link] = {}
    for line in _lines(text):
        match = _LINK.fullmatch(line)
        if match is None:
            raise InvalidRules(
                _(
                    "%(line)s is no link; write FROM > TO = NUMBER Gbit/s, NUMBER ms, for "
                    "example eu > us = 1 Gbit/s, 80 ms"
                )
                % {"line": repr(line)}
            )
        source, target = match[1].strip(), match[2].strip()
        name = f"{source} > {target}"
        _check_new(name, links)
        try:
            links[name] = Link(
                source=source,
                target=target,
                bandwidth_bytes_per_s=float(match[3]) * BITS_PER_GBIT / BITS_PER_BYTE,
                latency_s=float(match[4]) / MS_PER_S,
            )
        except PlannerError as error:
            raise InvalidRules(f"{line!r}: {error}") from error
    return tuple(links.values())


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
        raise InvalidRules(_("%(name)s has two lines; keep one") % {"name": repr(name)})
