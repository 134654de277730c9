"""Whether a model fits into each cluster: by its profiles or, before anything is measured, by what
agents report, and then how fast it may run.

Such speeds come from what a node measured for another model, scaled by the bytes of a layer, or
from the data sheet of its GPU.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db.models import Count

from helixweb.inventory.models import Cluster, LanguageModel, Node, Profile
from helixweb.inventory.services.problems import domain_of
from planner import (
    LayerLimits,
    ModelMemory,
    NodeRoom,
    StepShape,
    Workload,
    kv_minimum,
    most_held,
    node_room,
)
from planner.roofline import (
    DATA_SHEETS,
    LayerShape,
    UnknownGpu,
    Vocabulary,
    roofline_profile,
    sheet_name_of,
)
from runtime.protocol.checkpoint_looks import ModelFacts

_STEP_TOKENS = 16  # tokens of a page, and of the smallest step


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How well a model fits into a cluster: at most `layers` are held, of `needed`.

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


def fits_of_models(scope: Any, models: Sequence[LanguageModel]) -> dict[int, list[Fit]]:
    """Fits by model id: of every cluster in scope with profiles for it. Three queries in total."""
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


def fits_of_facts(facts: ModelFacts) -> list[Fit]:
    """Fits of a model into every cluster of the site with nodes that have joined.

    The layers are as many as a measurement will find, unless a GPU's allocator needs much memory.
    """
    nodes: dict[Cluster, list[Node]] = defaultdict(list)
    rows = Node.unscoped.filter(joined_at__isnull=False).select_related("cluster")
    for node in rows.order_by("cluster__name"):
        nodes[node.cluster].append(node)
    profiles = {
        (row.cluster_id, row.name): row
        for row in Profile.unscoped.filter(cluster__in=nodes)
        .select_related("model")
        .order_by("recorded_at")
    }
    return [_Forecast(cluster, facts, profiles).fit(held) for cluster, held in nodes.items()]


class _Forecast:
    def __init__(
        self, cluster: Cluster, facts: ModelFacts, profiles: dict[tuple[int, str], Profile]
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._profiles = profiles
        self._workload = domain_of(Workload, cluster)
        self._memory = self._memory_of_model()
        self._room = cache(self._room_within)
        self._sheet_speeds = cache(self._speeds_of_sheet)

    def fit(self, nodes: Sequence[Node]) -> Fit:
        """The fit into the cluster with these nodes."""
        gpus: Counter[str] = Counter()
        limits, speeds = [], []
        for node in nodes:
            hardware = node.hardware or {}
            gpus.update(gpu["name"] for gpu in hardware.get("gpus", []))
            budget = hardware.get("memory_budget_bytes")
            if budget is None:
                continue
            room = self._room(float(budget))
            ends = (room.memory.first, room.memory.last, room.memory.both)
            limits.append(LayerLimits(room.max_layers, *(end.max_layers for end in ends)))
            speed = self._token_layers_per_s(node, hardware, layers=room.max_layers)
            if speed is not None:
                speeds.append(speed)
        return Fit(
            cluster=self._cluster,
            layers=most_held(limits, num_layers=self._facts.num_layers),
            needed=self._facts.num_layers,
            nodes=len(nodes),
            nodes_with_profile=len(limits),
            gpus=tuple(gpus.most_common()),
            tokens_per_s=sum(speeds) / self._facts.num_layers,
            nodes_with_speed=len(speeds),
        )

    def _room_within(self, budget: float) -> NodeRoom:
        return node_room(
            lambda _layers, _has_first, _has_last: self._memory,
            budget_bytes=budget,
            num_layers=self._facts.num_layers,
        )

    def _token_layers_per_s(
        self, node: Node, hardware: dict[str, Any], *, layers: int
    ) -> float | None:
        """Tokens times layers that the node computes each second; None: not known."""
        if not layers:
            return 0.0
        profile = self._profiles.get((node.cluster_id, node.profile_name))
        if profile is not None:
            scale = profile.model.bytes_per_layer / self._facts.bytes_per_layer
            return scale * _fastest(profile.tokens_per_s, layers)
        gpus = hardware.get("gpus", [])
        if len(gpus) != 1:
            return None
        try:
            sheet = sheet_name_of(gpus[0]["name"])
        except UnknownGpu:
            return None
        speeds = self._sheet_speeds(sheet)
        relative = float(hardware.get("relative_speed", 1.0))
        return relative * _fastest(speeds, layers) if speeds else None

    def _speeds_of_sheet(self, sheet: str) -> tuple[float, ...]:
        """Tokens/s of the GPU with 1, 2, … layers."""
        shape = LayerShape(
            hidden_size=self._facts.hidden_size,
            intermediate_size=self._facts.intermediate_size,
            query_heads=self._facts.num_heads,
            kv_heads=self._facts.num_kv_heads,
            head_size=self._facts.head_dim,
        )
        profile = roofline_profile(
            sheet,
            DATA_SHEETS[sheet],
            shape,
            gpu=sheet,
            num_layers=self._facts.num_layers,
            workload=self._workload,
            vocabulary=Vocabulary(size=self._facts.vocab_size, is_tied=False),
            longest_tokens=self._facts.max_context_tokens,
        )
        # the sheet knows 16-bit layers of dense models; others have more or fewer bytes
        scale = shape.weights_bytes / self._facts.bytes_per_layer
        return tuple(scale * speed for speed in profile.tokens_per_s)

    def _memory_of_model(self) -> ModelMemory:
        """Memory with the smallest steps, which a stage uses if memory is short."""
        facts = self._facts
        kv_size = facts.num_kv_heads * facts.head_dim
        shape = StepShape(
            hidden_size=facts.hidden_size,
            intermediate_size=facts.intermediate_size,
            query_size=facts.num_heads * facts.head_dim,
            kv_size=kv_size,
            vocab_size=facts.vocab_size,
            element_bytes=facts.element_bytes,
        )
        without_head, with_head = (
            shape.activation_bytes(
                _STEP_TOKENS, context_tokens=facts.max_context_tokens, has_head=has_head
            )
            for has_head in (False, True)
        )
        norm_bytes = facts.hidden_size * facts.element_bytes
        return ModelMemory(
            num_layers=facts.num_layers,
            layer=facts.bytes_per_layer,
            first=facts.embedding_bytes,
            last=facts.embedding_bytes + norm_bytes,
            both=facts.embedding_bytes + facts.head_bytes,
            kv_token=2 * kv_size * facts.element_bytes,
            kv_minimum=kv_minimum(self._workload, longest_tokens=facts.max_context_tokens),
            page_tokens=_STEP_TOKENS,
            activations=without_head,
            head_activations=with_head - without_head,
        )


def _fastest(tokens_per_s: Sequence[float], layers: int) -> float:
    """The most tokens times layers a second with up to that many layers."""
    return max(
        (held * speed for held, speed in enumerate(tokens_per_s[:layers], start=1)), default=0.0
    )
