"""Compares an inventory file with the site: rows to add, change and remove; and does these steps
in bulk, logs them, and notifies open pages."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

from django.db import IntegrityError, models
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.sentences import sentence
from helixweb.inventory.as_code.documents import (
    CLUSTERS,
    FORMAT,
    LINKS,
    MODELS,
    NODES,
    OF_CLUSTER,
    PROFILES,
    REGION_LINKS,
    Declaration,
    Key,
    Kind,
    name_of,
)
from helixweb.inventory.models import Change, Cluster, LanguageModel, NodeTag, Origin
from helixweb.inventory.services.bulk import AT_ONCE, batches
from helixweb.inventory.services.change_log import Values, change_of, record_all, values_of
from helixweb.inventory.services.errors import NameTaken
from helixweb.inventory.services.records import FOLLOWED, forget_members

_AT_ONCE = 2000
# What the site changes by itself of a link that it measures: no part of what a file declares.
_MEASURED = ("bandwidth_bytes_per_s", "latency_s", "origin")


@dataclass(frozen=True, slots=True)
class Stored:
    """One row: its id and what a file would say of it."""

    pk: int
    values: Mapping[str, Any]


class Site(dict[tuple[str, str], dict[Key, Stored]]):
    """Rows by section and cluster ("" for models and clusters), then by key; a section of which a
    file says nothing is missing."""

    def of(self, kind: Kind, cluster: str = "") -> dict[Key, Stored]:
        return self.get((kind.section, cluster), {})


def read_site(scope: Any, names: Iterable[str] | None = None) -> Site:
    """Read all models and clusters, and the rows of the named clusters; None: of all."""
    site = Site()
    site[MODELS.section, ""] = _rows(MODELS, LanguageModel.objects.order_by("name"))
    site[CLUSTERS.section, ""] = _rows(CLUSTERS, Cluster.objects.within(scope).order_by("name"))
    ids = {name: row.pk for (name,), row in site.of(CLUSTERS).items()}
    wanted = ids.keys() if names is None else ids.keys() & set(names)
    for kind in OF_CLUSTER:
        having = set(kind.clusters().values_list("pk", flat=True))
        for name in wanted:
            if ids[name] in having:
                found = kind.row._base_manager.filter(cluster=ids[name]).order_by("pk")
                site[kind.section, name] = _rows(kind, found)
    return site


def document_of(site: Site, clusters: Iterable[str], *, with_all_models: bool) -> dict[str, Any]:
    """A document for `documents.read_document`; only with models that the clusters have profiles
    for, unless `with_all_models`."""
    sections_of = []
    used = set()
    for name in clusters:
        sections = {
            kind.section: [row.values for row in site.of(kind, name).values()]
            for kind in OF_CLUSTER
            if (kind.section, name) in site
        }
        used |= {profile["model"] for profile in sections[PROFILES.section]}
        sections_of.append({**site.of(CLUSTERS)[name,].values, **sections})
    models = [
        row.values for (name,), row in site.of(MODELS).items() if with_all_models or name in used
    ]
    return {"format": FORMAT, "models": models, "clusters": sections_of}


def _rows(kind: Kind, found: Any) -> dict[Key, Stored]:
    columns = [key for key in kind.keys if key != "tags"]
    lookups = [kind.lookup(key) for key in columns]
    tags = _tags_of(found) if "tags" in kind.keys else None
    rows = {}
    for pk, *values in found.values_list("pk", *lookups).iterator(_AT_ONCE):
        fields = dict(zip(columns, values, strict=True))
        if tags is not None:
            fields["tags"] = sorted(tags.get(pk, ()))
        rows[tuple(str(fields[name]) for name in kind.key)] = Stored(pk, fields)
    return rows


def _tags_of(nodes: Any) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for node, name in NodeTag.unscoped.filter(node__in=nodes.order_by()).values_list(
        "node", "name"
    ):
        found.setdefault(node, []).append(name)
    return found


class Action(StrEnum):
    """The action of a step on a row."""

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
    """Steps in the order of `kinds.ALL`; removals follow in the opposite order.

    Only with `prune` are rows removed that the file leaves out, in the sections that it has;
    models and clusters are never removed.
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
    """True if the site measures the link itself and the file has no numbers entered by a user."""
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


@dataclass(frozen=True, slots=True)
class Written:
    """The row of a step as it is now, and its values in the change log before and after."""

    step: Step
    row: models.Model
    before: Values | None
    after: Values | None


def apply(steps: Iterable[Step]) -> list[Written]:
    """Call it in a transaction. Raises NameTaken."""
    written: list[Written] = []
    try:
        for (action, kind, cluster), group in groupby(
            steps, key=lambda step: (step.action, step.kind, step.cluster)
        ):
            for part in batches(list(group)):
                written += _DO[action](kind, cluster, part)
    except IntegrityError as error:  # between the look and the insert
        raise NameTaken(
            "Another request made a row of the same name at the same moment; import the file again."
        ) from error
    return written


def _add(kind: Kind, cluster: str, part: Sequence[Step]) -> list[Written]:
    owner = {} if kind in (MODELS, CLUSTERS) else {"cluster": Cluster.unscoped.get(name=cluster)}
    made = [kind.row(**_columns(kind, step.after), **owner) for step in part]
    kind.row._base_manager.bulk_create(made, batch_size=AT_ONCE)
    kind.added(made)
    _set_tags(zip(made, part, strict=True))
    return [Written(step, row, None, values_of(row)) for step, row in zip(part, made, strict=True)]


def _change(kind: Kind, cluster: str, part: Sequence[Step]) -> list[Written]:
    rows: Any = kind.row._base_manager
    found = rows.in_bulk([step.pk for step in part])
    before = {pk: values_of(row) for pk, row in found.items()}
    for step in part:
        row = found[step.pk]
        for name, value in _columns(kind, step.after).items():
            setattr(row, name, value)
        row.save()
    _set_tags((found[step.pk], step) for step in part)
    return [
        Written(
            step,
            found[step.pk],
            {**before[step.pk], **_logged_tags(step.before)},
            {**values_of(found[step.pk]), **_logged_tags(step.after)},
        )
        for step in part
    ]


def _remove(kind: Kind, cluster: str, part: Sequence[Step]) -> list[Written]:
    rows: Any = kind.row._base_manager
    found = rows.in_bulk([step.pk for step in part])
    written = [Written(step, found[step.pk], values_of(found[step.pk]), None) for step in part]
    if kind is NODES:
        forget_members(Cluster.unscoped.get(name=cluster).pk, {step.name for step in part})
    rows.filter(pk__in=found).delete()
    return written


_DO = {Action.ADD: _add, Action.CHANGE: _change, Action.REMOVE: _remove}


def _columns(kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
    columns = {kind.column(key): value for key, value in values.items() if key != "tags"}
    if "model" in columns:
        columns["model"] = LanguageModel.objects.get(name=columns["model"])
    return columns


def _logged_tags(values: Mapping[str, Any]) -> Values:
    return {"tags": values["tags"]} if "tags" in values else {}


def _set_tags(pairs: Iterable[tuple[Any, Step]]) -> None:
    tagged = [(row.pk, step.after["tags"]) for row, step in pairs if "tags" in step.after]
    NodeTag.unscoped.filter(node__in=[pk for pk, _ in tagged]).delete()
    rows = [NodeTag(node_id=pk, name=name) for pk, tags in tagged for name in tags]
    NodeTag.objects.bulk_create(rows, batch_size=AT_ONCE)


_ACTIONS = {
    Action.ADD: Change.Action.ADDED,
    Action.CHANGE: Change.Action.CHANGED,
    Action.REMOVE: Change.Action.REMOVED,
}


def announce(written: Sequence[Written], *, in_one_line: bool) -> None:
    """A line of the change log for each row, or one for a new cluster that names the number of its
    nodes; one event per cluster and kind of row."""
    text = f"{sum(one.step.kind is NODES for one in written)} nodes" if in_one_line else ""
    record_all(
        change_of(one.row, _ACTIONS[one.step.action], before=one.before, after=one.after, text=text)
        for one in written
        if one.step.kind is CLUSTERS or not in_one_line
    )
    counts: dict[int, Counter[Action]] = defaultdict(Counter)
    types: dict[int, set[str]] = defaultdict(set)
    for one in written:
        row: Any = one.row
        if one.step.kind is not MODELS:
            cluster = row.pk if one.step.kind is CLUSTERS else row.cluster_id
            counts[cluster][one.step.action] += 1
            types[cluster].add(FOLLOWED.get(one.step.kind.row, ("event", ""))[0])
    for cluster, count in counts.items():
        said = sentence(
            gettext_noop(
                "A file was imported: %(added)s rows added, %(changed)s changed, "
                "%(removed)s removed."
            ),
            added=count[Action.ADD],
            changed=count[Action.CHANGE],
            removed=count[Action.REMOVE],
        )
        for type_ in sorted(types[cluster]):
            data = {"name": "", "state": "changed", **said} if type_ == "node" else said
            events.emit(f"cluster:{cluster}", type_, data)
