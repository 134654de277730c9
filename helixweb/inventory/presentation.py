"""What the pages show of a cluster or a model, gathered from the rows. Reads only."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helixweb.inventory.models import Cluster, LanguageModel, Node, NodeState, Profile
from helixweb.inventory.network import Network, build_network
from helixweb.inventory.services.problems import domain_link


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node with its GPU as detected, else as its profile says."""

    node: Node
    state: NodeState
    gpu: str
    memory_bytes: float
    is_slowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """`gpus` and `regions` count nodes."""

    nodes: tuple[NodeRow, ...]
    online: int
    lost: int
    gpus: tuple[tuple[str, int], ...]
    regions: tuple[tuple[str, int], ...]
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How often the layers of a model fit into a cluster: `layers` held at most, of `needed`."""

    cluster: Cluster
    layers: int
    needed: int
    nodes: int
    nodes_with_profile: int
    gpus: tuple[tuple[str, int], ...]

    @property
    def fits(self) -> bool:
        return self.layers >= self.needed

    @property
    def copies(self) -> float:
        return self.layers / self.needed


def cluster_view(cluster: Cluster, *, now: datetime) -> ClusterView:
    """Nodes and their counts."""
    profiles = {profile.name: profile for profile in cluster.profiles.all()}
    rows = tuple(_node_row(node, profiles.get(node.profile_name), now) for node in
                 cluster.nodes.all())  # fmt: skip
    states = Counter(row.state for row in rows)
    return ClusterView(
        nodes=rows,
        online=states[NodeState.ONLINE],
        lost=states[NodeState.LOST],
        gpus=tuple(Counter(row.gpu or "unknown" for row in rows).most_common()),
        regions=tuple(Counter(row.node.region for row in rows).most_common()),
        memory_bytes=sum(row.memory_bytes for row in rows),
    )


def node_row(node: Node, *, now: datetime) -> NodeRow:
    """One node, for its own page."""
    profile = node.cluster.profiles.filter(name=node.profile_name).first()
    return _node_row(node, profile, now)


def _node_row(node: Node, profile: Profile | None, now: datetime) -> NodeRow:
    hardware: dict[str, Any] = node.hardware or {}
    detected = Counter(gpu["name"] for gpu in hardware.get("gpus", []))
    names = [f"{count} x {name}" if count > 1 else name for name, count in detected.items()]
    if hardware:
        gpu, memory_bytes = ", ".join(names) or "CPU", hardware["memory_budget_bytes"]
    else:
        gpu, memory_bytes = (profile.gpu, profile.vram_bytes) if profile else ("", 0)
    return NodeRow(
        node=node,
        state=node.state_at(now),
        gpu=gpu,
        memory_bytes=memory_bytes,
        is_slowed=hardware.get("relative_speed", 1.0) < 1,
    )


def cluster_network(cluster: Cluster) -> Network:
    """Effective links of every pair."""
    return build_network(
        region_by_node=dict(cluster.nodes.values_list("name", "region")),
        coordinator_region=cluster.coordinator_region,
        links=[domain_link(row) for row in cluster.links.all()],
        region_links=[domain_link(row) for row in cluster.region_links.all()],
    )


def fits_of(model: LanguageModel) -> list[Fit]:
    """Every cluster that has profiles for the model."""
    clusters = Cluster.objects.filter(profiles__model=model).distinct().prefetch_related("nodes")
    return [_fit(cluster, model) for cluster in clusters]


def _fit(cluster: Cluster, model: LanguageModel) -> Fit:
    profiles = {row.name: row for row in Profile.objects.filter(cluster=cluster, model=model)}
    nodes = list(cluster.nodes.all())
    known = [profiles[node.profile_name] for node in nodes if node.profile_name in profiles]
    return Fit(
        cluster=cluster,
        layers=sum(min(profile.max_layers, model.num_layers) for profile in known),
        needed=model.num_layers,
        nodes=len(nodes),
        nodes_with_profile=len(known),
        gpus=tuple(Counter(profile.gpu or profile.name for profile in known).most_common()),
    )
