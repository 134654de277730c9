"""What the site has now, in the words of a file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helixweb.inventory.as_code.declared import Key
from helixweb.inventory.as_code.kinds import CLUSTERS, FORMAT, MODELS, OF_CLUSTER, PROFILES, Kind
from helixweb.inventory.models import Cluster, LanguageModel, NodeTag

_AT_ONCE = 2000


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
    """All models and clusters, with the rows of the named clusters; None: of all."""
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
    """As `documents.read_document` reads it; only models that the clusters have profiles for,
    unless all are wanted."""
    told = []
    used = set()
    for name in clusters:
        sections = {
            kind.section: [row.values for row in site.of(kind, name).values()]
            for kind in OF_CLUSTER
            if (kind.section, name) in site
        }
        used |= {profile["model"] for profile in sections[PROFILES.section]}
        told.append({**site.of(CLUSTERS)[name,].values, **sections})
    models = [
        row.values for (name,), row in site.of(MODELS).items() if with_all_models or name in used
    ]
    return {"format": FORMAT, "models": models, "clusters": told}


def _rows(kind: Kind, found: Any) -> dict[Key, Stored]:
    columns = [key for key in kind.keys if key != "tags"]
    lookups = [kind.lookup(key) for key in columns]
    tags = _tags(found) if "tags" in kind.keys else None
    rows = {}
    for pk, *values in found.values_list("pk", *lookups).iterator(_AT_ONCE):
        told = dict(zip(columns, values, strict=True))
        if tags is not None:
            told["tags"] = sorted(tags.get(pk, ()))
        rows[tuple(str(told[name]) for name in kind.key)] = Stored(pk, told)
    return rows


def _tags(nodes: Any) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for node, name in NodeTag.unscoped.filter(node__in=nodes.order_by()).values_list(
        "node", "name"
    ):
        found.setdefault(node, []).append(name)
    return found
