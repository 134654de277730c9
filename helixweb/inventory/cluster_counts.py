"""The nodes of clusters summed up, and the first of them: no page shows a thousand. Reads only."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count
from django.utils.translation import gettext as _

from helixweb.inventory.models import Cluster, Node, NodeState, Profile
from helixweb.inventory.node_list import in_state
from helixweb.inventory.presentation import gpu_and_memory


def cluster_counts(clusters: Iterable[Cluster], *, now: datetime) -> dict[int, dict[str, Any]]:
    """The nodes of clusters summed up, by id; "gpus" and "regions" count nodes, most first.

    Alike nodes are counted by the database. Two queries for all.
    """
    keys = [cluster.pk for cluster in clusters]
    profiles = {
        (profile.cluster_id, profile.name): profile
        for profile in Profile.unscoped.filter(cluster__in=keys).only(
            "cluster", "name", "gpu", "vram_bytes"
        )
    }
    rows: Iterable[Any] = (
        Node.unscoped.filter(cluster__in=keys)
        .order_by()
        .values(
            "cluster", "region", "profile_name", "hardware__gpus", "hardware__memory_budget_bytes"
        )
        .annotate(
            count=Count("pk"),
            online=Count("pk", filter=in_state(NodeState.ONLINE, now=now)),
            lost=Count("pk", filter=in_state(NodeState.LOST, now=now)),
        )
    )
    alike: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        alike[row["cluster"]].append(row)
    return {key: _counts(alike[key], profiles) for key in keys}


def _counts(
    alike: Sequence[Mapping[str, Any]], profiles: Mapping[tuple[int, str], Profile]
) -> dict[str, Any]:
    gpus: Counter[str] = Counter()
    regions: Counter[str] = Counter()
    memory_bytes = 0.0
    for row in alike:
        profile = profiles.get((row["cluster"], row["profile_name"]))
        gpu, each_bytes = gpu_and_memory(
            row["hardware__gpus"], row["hardware__memory_budget_bytes"], profile
        )
        gpus[gpu or _("unknown")] += row["count"]
        regions[row["region"]] += row["count"]
        memory_bytes += row["count"] * each_bytes
    sums = {name: sum(row[name] for row in alike) for name in ("count", "online", "lost")}
    return {
        **sums,
        "nodes": sums["count"],
        "gpus": gpus.most_common(),
        "regions": regions.most_common(),
        "memory_bytes": memory_bytes,
    }
