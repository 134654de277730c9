"""Compares a file with the site: which rows come, change and go."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from helixweb.inventory.as_code.declared import Declaration, Key
from helixweb.inventory.as_code.kinds import (
    CLUSTERS,
    LINKS,
    MODELS,
    NODES,
    OF_CLUSTER,
    REGION_LINKS,
    Kind,
    name_of,
)
from helixweb.inventory.as_code.stored import Site
from helixweb.inventory.models import Origin

# What the site changes by itself of a link that it measures: no part of what a file declares.
_MEASURED = ("bandwidth_bytes_per_s", "latency_s", "origin")


class Action(StrEnum):
    """What is done to a row."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row. `before` and `after` hold the keys that differ, of what is added or removed all.

    `pk` is None for what is added; `place` is where the file says so, "" for what it leaves out.
    """

    action: Action
    kind: Kind
    cluster: str
    key: Key
    pk: int | None = None
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    place: str = ""

    @property
    def name(self) -> str:
        return name_of(self.key)


def steps(declaration: Declaration, site: Site, *, prune: bool) -> Iterator[Step]:
    """In the order of `kinds.ALL`, removals in the opposite order after all others.

    Only with `prune` goes what the file leaves out, in the sections that it has; models and
    clusters never go.
    """
    clusters = declaration.clusters()
    yield from _declared(declaration, site, MODELS, "")
    yield from _declared(declaration, site, CLUSTERS, "")
    for cluster in clusters:
        for kind in OF_CLUSTER:
            yield from _declared(declaration, site, kind, cluster)
    if prune:
        for cluster in clusters:
            yield from _left_out(declaration, site, cluster)


def _declared(declaration: Declaration, site: Site, kind: Kind, cluster: str) -> Iterator[Step]:
    stored = site.of(kind, cluster)
    for key, row in declaration.rows(kind, cluster).items():
        where: dict[str, Any] = {"kind": kind, "cluster": cluster, "key": key, "place": row.place}
        known = stored.get(key)
        if known is None:
            yield Step(action=Action.ADD, before={}, after=row.values, **where)
            continue
        is_measured = kind in (LINKS, REGION_LINKS) and _is_measured_since(row.values, known.values)
        after = {
            name: value
            for name, value in row.values.items()
            if not (is_measured and name in _MEASURED) and not _same(value, known.values.get(name))
        }
        if after:
            before = {name: known.values.get(name) for name in after}
            yield Step(action=Action.CHANGE, pk=known.pk, before=before, after=after, **where)


def _is_measured_since(declared: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """True if the site measures the link itself, and the file gives no numbers of a person's."""
    automatic = (Origin.MEASURED, Origin.ESTIMATED)
    return stored.get("origin") == Origin.MEASURED and declared.get("origin") in automatic


def _left_out(declaration: Declaration, site: Site, cluster: str) -> Iterator[Step]:
    gone = {
        key[0]
        for key in site.of(NODES, cluster)
        if declaration.has(NODES, cluster) and key not in declaration.rows(NODES, cluster)
    }
    for kind in reversed(OF_CLUSTER):
        is_told, rows = declaration.has(kind, cluster), declaration.rows(kind, cluster)
        for key, known in site.of(kind, cluster).items():
            is_measured = (
                kind in (LINKS, REGION_LINKS) and known.values["origin"] == Origin.MEASURED
            )
            # A node takes its links along, whatever the file says of links.
            if (is_told and key not in rows and not is_measured) or (
                kind is LINKS and not gone.isdisjoint(key)
            ):
                yield Step(
                    action=Action.REMOVE, kind=kind, cluster=cluster, key=key, pk=known.pk,
                    before=known.values, after={},
                )  # fmt: skip


def _same(declared: Any, stored: Any) -> bool:
    """1 and 1.0 are; True and 1 are not."""
    if isinstance(declared, bool) is not isinstance(stored, bool):
        return False
    if isinstance(declared, list) and isinstance(stored, list):
        return len(declared) == len(stored) and all(map(_same, declared, stored))
    if isinstance(declared, dict) and isinstance(stored, dict):
        return declared.keys() == stored.keys() and all(
            _same(value, stored[key]) for key, value in declared.items()
        )
    return bool(declared == stored)
