"""What the site has now, in the words of a file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from helixweb.inventory.as_code.declared import Key
from helixweb.inventory.as_code.kinds import CLUSTERS, FORMAT, MODELS, OF_CLUSTER, PROFILES, Kind
from helixweb.inventory.models import Cluster, LanguageModel, Node, NodeTag

_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Stored:
    """One row: its id and what a file would say of it."""

    pk: int
    values: Mapping[str, Any]


@dataclass(slots=True)
class Site:
    """Rows by kind, then by key; those of clusters only where they were asked for. `untold`: of
    what a file says nothing."""

    models: dict[Key, Stored] = field(default_factory=dict)
    clusters: dict[Key, Stored] = field(default_factory=dict)
    rows: dict[tuple[str, str], dict[Key, Stored]] = field(default_factory=dict)
    untold: set[tuple[str, str]] = field(default_factory=set)

    def of(self, kind: Kind, cluster: str = "") -> dict[Key, Stored]:
        if kind is MODELS:
            return self.models
        if kind is CLUSTERS:
            return self.clusters
        return self.rows.get((kind.section, cluster), {})


def read_site(names: Iterable[str] | None = None) -> Site:
    """With the rows of the named clusters; None: of all."""
    site = Site()
    site.models = _rows(MODELS, LanguageModel.objects.order_by("name"), {})
    clusters = Cluster.objects.order_by("name")
    site.clusters = _rows(CLUSTERS, clusters, {})
    wanted = set(site.clusters) if names is None else {(name,) for name in names}
    model_names = {row.pk: key[0] for key, row in site.models.items()}
    having = {
        kind.section: set(kind.clusters().values_list("pk", flat=True)) for kind in OF_CLUSTER
    }
    for key, row in site.clusters.items():
        if key in wanted:
            for kind in OF_CLUSTER:
                found = kind.row._default_manager.filter(cluster=row.pk).order_by("pk")
                site.rows[kind.section, key[0]] = _rows(kind, found, model_names)
                if row.pk not in having[kind.section]:
                    site.untold.add((kind.section, key[0]))
    return site


def document_of(site: Site, clusters: Iterable[str], *, with_all_models: bool) -> dict[str, Any]:
    """As `documents.read_document` reads it; only models that the clusters have profiles for,
    unless all are wanted."""
    told = []
    used = set()
    for name in clusters:
        sections = {
            kind.section: [_plain(row.values) for row in site.of(kind, name).values()]
            for kind in OF_CLUSTER
            if (kind.section, name) not in site.untold
        }
        used |= {profile["model"] for profile in sections[PROFILES.section]}
        told.append({**_plain(site.clusters[name,].values), **sections})
    models = [
        _plain(row.values)
        for (name,), row in site.models.items()
        if with_all_models or name in used
    ]
    return {"format": FORMAT, "models": models, "clusters": told}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }


def _rows(kind: Kind, found: Any, model_names: Mapping[int, str]) -> dict[Key, Stored]:
    columns = [kind.column(key) for key in kind.columns]
    tags = _tags(found) if kind.row is Node else {}
    rows = {}
    extra = ["model_id"] if kind is PROFILES else []
    for pk, *values in found.values_list("pk", *columns, *extra).iterator(_AT_ONCE):
        told = dict(zip(kind.columns, values, strict=False))
        if kind is PROFILES:
            told = {"model": model_names[values[-1]], **told}
        if kind.row is Node:
            told["tags"] = tuple(sorted(tags.get(pk, ())))
        rows[tuple(str(told[name]) for name in kind.key)] = Stored(pk, told)
    return rows


def _tags(nodes: Any) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for node, name in NodeTag.objects.filter(node__in=nodes.order_by()).values_list("node", "name"):
        found.setdefault(node, []).append(name)
    return found
