"""What the pages show of a cluster or a model, gathered from the rows. Reads only."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from helixweb.inventory.models import Cluster, LanguageModel, Node, Profile
from helixweb.inventory.network import Network
from planner import LayerLimits, most_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How often the layers of a model fit into a cluster: `layers` held at most, of `needed`.

    `tokens_per_s` is what `nodes_with_speed` of the nodes compute together, network aside; it is
    only forecast for a model without profiles.
    """

    cluster: Cluster
    layers: int
    needed: int
    nodes: int
    nodes_with_profile: int
    gpus: tuple[tuple[str, int], ...]
    tokens_per_s: float = 0.0
    nodes_with_speed: int = 0

    @property
    def fits(self) -> bool:
        return self.layers >= self.needed

    @property
    def copies(self) -> float:
        return self.layers / self.needed


def gpu_and_memory(
    gpus: Sequence[Mapping[str, Any]] | None, budget_bytes: float | None, profile: Profile | None
) -> tuple[str, float]:
    """As its agent detected, else as the profile says."""
    if gpus is None or budget_bytes is None:
        return (profile.gpu, profile.vram_bytes) if profile else ("", 0.0)
    detected = Counter(gpu["name"] for gpu in gpus)
    names = [f"{count} x {name}" if count > 1 else name for name, count in detected.items()]
    return ", ".join(names) or "CPU", budget_bytes


def cluster_network(cluster: Cluster) -> Network:
    """What counts between its nodes, and a summary by region."""
    return Network(
        region_by_node=dict(cluster.nodes.values_list("name", "region")),
        coordinator_region=cluster.coordinator_region,
        links=cluster.links.all(),
        region_links=cluster.region_links.all(),
    )


def fits_of_models(scope: Any, models: Sequence[LanguageModel]) -> dict[int, list[Fit]]:
    """By the model's id: every cluster in scope that has profiles for it. Three queries for all."""
    profiles = (
        Profile.objects.within(scope)
        .filter(model__in=models)
        .select_related("cluster")
        .only("cluster", "cluster__name", "model", "name", "gpu", "max_layers", "memory")
    )
    of_pair: dict[tuple[int, int], dict[str, Profile]] = defaultdict(dict)
    clusters: dict[int, Cluster] = {}
    for profile in profiles:
        of_pair[profile.model_id, profile.cluster_id][profile.name] = profile
        clusters[profile.cluster_id] = profile.cluster
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    rows = Node.unscoped.filter(cluster__in=clusters).order_by()
    for row in rows.values("cluster", "profile_name").annotate(count=Count("pk")):
        counts[row["cluster"]][row["profile_name"]] = row["count"]
    fits: dict[int, list[Fit]] = {model.pk: [] for model in models}
    for model in models:
        for pk, cluster in sorted(clusters.items(), key=lambda item: item[1].name):
            if (model.pk, pk) in of_pair:
                fits[model.pk].append(_fit(cluster, model, of_pair[model.pk, pk], counts[pk]))
    return fits


def _fit(
    cluster: Cluster, model: LanguageModel, profiles: Mapping[str, Profile], counts: Counter[str]
) -> Fit:
    """`counts`: how many nodes name each profile."""
    known = {name: count for name, count in counts.items() if name in profiles}
    gpus: Counter[str] = Counter()
    for name, count in known.items():
        gpus[profiles[name].gpu or name] += count
    return Fit(
        cluster=cluster,
        layers=most_held(
            [
                _limits(profiles[name], num_layers=model.num_layers)
                for name, count in known.items()
                for _ in range(count)
            ],
            num_layers=model.num_layers,
        ),
        needed=model.num_layers,
        nodes=counts.total(),
        nodes_with_profile=sum(known.values()),
        gpus=tuple(gpus.most_common()),
    )


def _limits(profile: Profile, *, num_layers: int) -> LayerLimits:
    most = min(profile.max_layers, num_layers)
    if profile.memory is None:
        return LayerLimits(most, most, most, most)
    ends = (profile.memory[end]["max_layers"] for end in ("first", "last", "both"))
    return LayerLimits(most, *(min(most, end) for end in ends))
