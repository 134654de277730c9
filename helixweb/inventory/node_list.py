"""The list of all nodes, filtered and sorted by the database, and sums of them by cluster."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _

from helixweb.common.queries import parsed_id
from helixweb.inventory.models import Cluster, Node, NodeState, NodeTag, Profile
from helixweb.inventory.stale_profiles import stale_profiles

_COLUMNS = {"name": "name", "region": "region", "profile": "profile_name", "seen": "last_seen_at"}
SORTS = {
    f"{sign}{by}": (f"{sign}{column}", "name", "pk")
    for by, column in _COLUMNS.items()
    for sign in ("", "-")
}
LOOKUPS = {
    "cluster": "cluster",
    "q": "name__icontains",
    "region": "region",
    "profile": "profile_name",
    "tag": "tags__name",
}


def asked_of(query: Mapping[str, Any]) -> dict[str, Any]:
    """The filters that an address names, and "sort"; what makes no sense is left out."""
    asked: dict[str, Any] = {
        name: query.get(name, "").strip() for name in (*LOOKUPS, "state", "sort")
    }
    asked["cluster"] = parsed_id(asked["cluster"])
    if asked["state"] not in NodeState.values:
        del asked["state"]
    if asked["sort"] not in SORTS:
        asked["sort"] = "name"
    return {name: value for name, value in asked.items() if value}


def nodes_matching(scope: Any, asked: Mapping[str, Any], *, now: datetime) -> QuerySet[Node]:
    """Nodes that match the filters in `asked`, in its order."""
    nodes = Node.objects.within(scope).select_related("cluster").order_by(*SORTS[asked["sort"]])
    if "state" in asked:
        nodes = nodes.filter(in_state(NodeState(asked["state"]), now=now))
    return nodes.filter(
        **{LOOKUPS[name]: value for name, value in asked.items() if name in LOOKUPS}
    )


def in_state(state: NodeState, *, now: datetime) -> Q:
    """`Process.state_at` for the database, of nodes and of coordinators."""
    lost_before = now - timedelta(seconds=settings.HELIX_NODE_LOST_AFTER_S)
    declared = Q(joined_at__isnull=True) | Q(last_seen_at__isnull=True)
    if state is NodeState.DECLARED:
        return declared
    is_lost = Q(last_seen_at__lt=lost_before)
    return ~declared & (is_lost if state is NodeState.LOST else ~is_lost)


def gpu_and_memory(
    gpus: Sequence[Mapping[str, Any]] | None, budget_bytes: float | None, profile: Profile | None
) -> tuple[str, float]:
    """GPU and memory as the agent detected, else those of the profile."""
    if gpus is None or budget_bytes is None:
        return (profile.gpu, profile.vram_bytes) if profile else ("", 0.0)
    detected = Counter(gpu["name"] for gpu in gpus)
    names = [f"{count} x {name}" if count > 1 else name for name, count in detected.items()]
    return ", ".join(names) or "CPU", budget_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node with its GPU as detected, else as its profile says."""

    node: Node
    state: NodeState
    gpu: str
    memory_bytes: float
    is_slowed: bool
    is_stale: bool  # its profile was measured under other conditions


def node_rows(found: Iterable[Node], *, now: datetime) -> list[NodeRow]:
    """Table rows with values of the nodes' profiles, in one query for all."""
    nodes = list(found)
    profiles = {
        (profile.cluster_id, profile.name): profile
        for profile in Profile.unscoped.filter(
            cluster__in={node.cluster_id for node in nodes},
            name__in={node.profile_name for node in nodes},
        ).defer("layer_times", "batch_limits", "tokens_per_s", "kv_capacity_token_layers", "memory")
    }
    stale, rows = stale_profiles(nodes), []
    for node in nodes:
        hardware = node.hardware or {}
        profile = profiles.get((node.cluster_id, node.profile_name))
        gpu, memory_bytes = gpu_and_memory(
            hardware.get("gpus"), hardware.get("memory_budget_bytes"), profile
        )
        rows.append(
            NodeRow(
                node=node,
                state=node.state_at(now),
                gpu=gpu,
                memory_bytes=memory_bytes,
                is_slowed=hardware.get("relative_speed", 1.0) < 1,
                is_stale=node.pk in stale,
            )
        )
    return rows


def choices(scope: Any) -> dict[str, Iterable[Any]]:
    """Choices of the filters and bulk actions: all values that nodes in scope have."""

    def distinct(rows: QuerySet[Any], field: str) -> Iterable[Any]:
        return rows.order_by(field).values_list(field, flat=True).distinct()

    return {
        "clusters": Cluster.objects.within(scope).only("name"),
        "regions": distinct(Node.objects.within(scope), "region"),
        "profiles": distinct(Profile.objects.within(scope), "name"),
        "tags": distinct(NodeTag.objects.within(scope), "name"),
    }


def state_counts(nodes: QuerySet[Node], *, now: datetime) -> dict[str, int]:
    """Number of nodes in each state."""
    counted = nodes.order_by().aggregate(**_counts(now))
    return {state.value: counted[state.value] for state in NodeState}


def state_counts_by_cluster(*, now: datetime) -> dict[int, dict[str, int]]:
    """The same by the cluster's id, of clusters that have nodes; one query for all."""
    rows: Iterable[Any] = Node.unscoped.order_by().values("cluster").annotate(**_counts(now))
    return {row["cluster"]: {state.value: row[state.value] for state in NodeState} for row in rows}


def _counts(now: datetime) -> dict[str, Count]:
    return {state.value: Count("pk", filter=in_state(state, now=now)) for state in NodeState}


CSV_COLUMNS = ("cluster", "name", "region", "state", "gpu", "memory_bytes", "profile", "tags")


def csv_lines(nodes: Iterable[Node], *, now: datetime) -> Iterable[tuple[str | float, ...]]:
    """One line a node, with its tags separated by blanks."""
    for row in node_rows(nodes, now=now):
        node = row.node
        yield (
            node.cluster.name, node.name, node.region, row.state.value, row.gpu, row.memory_bytes,
            node.profile_name, " ".join(tag.name for tag in node.tags.all()),
        )  # fmt: skip


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
    return {key: _sums(alike[key], profiles) for key in keys}


def _sums(
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
