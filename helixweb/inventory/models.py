"""Rows of the inventory. Bytes, seconds and tokens throughout; `services/` is the only writer."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy

from helixweb.access.scope import InCluster
from helixweb.inventory.columns import NAME_LENGTH, PROFILE_NAME_LENGTH, name_column, unique
from helixweb.inventory.process_models import (
    CheckpointLook,
    Coordinator,
    JoinToken,
    Node,
    NodeState,
    NodeTag,
    Process,
    gpus_of,
    lost_after,
)
from helixweb.inventory.validators import (
    MAX_LAYERS,
    validate_curve,
    validate_members,
    validate_name,
    validate_not_negative,
    validate_positive,
    validate_text,
    validate_vllm_flags,
)
from planner import COORDINATOR
from runtime.protocol.engine_names import Engine

__all__ = [
    "BY_PEOPLE", "Change", "CheckpointLook", "Cluster", "Connection", "Coordinator",
    "JoinToken", "LanguageModel", "Link", "Node", "NodeState", "NodeTag", "Origin", "Process",
    "Profile", "ProfileVersion", "RegionLink", "Replanning", "SharedBandwidth", "gpus_of",
    "lost_after",
]  # fmt: skip


class Origin(models.TextChoices):
    """The origin of a number."""

    IMPORTED = "imported"
    MEASURED = "measured"
    REFINED = "refined"
    ESTIMATED = "estimated"
    ENTERED = "entered"


# Numbers that a user entered, which no measurement overwrites.
BY_PEOPLE = (Origin.IMPORTED, Origin.ENTERED)


class Replanning(models.TextChoices):
    """Policy for a better placement after a node was lost or added."""

    AUTOMATIC = "automatic", gettext_lazy("automatic: deploy it")
    ASK = "ask", gettext_lazy("ask: offer it")
    NEVER = "never", gettext_lazy("never: do not look for one")


class Cluster(InCluster):
    """Machines that serve together, with the workload they are planned for by default."""

    cluster_path = "pk"

    name = name_column(unique=True)
    coordinator_region = name_column(default="local")
    mean_prompt_tokens = models.FloatField(default=512, validators=[validate_positive])
    mean_output_tokens = models.FloatField(default=128, validators=[validate_positive])
    replanning = models.CharField(
        max_length=10, choices=Replanning.choices, default=Replanning.AUTOMATIC
    )
    source = models.TextField(blank=True, validators=[validate_text])
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def region_of(self) -> dict[str, str]:
        """Regions by end of links: the coordinator and the nodes."""
        nodes = self.nodes.values_list("name", "region")
        return {COORDINATOR: self.coordinator_region, **dict(nodes)}


class LanguageModel(models.Model):
    """An LLM as the planner sees it, and where its checkpoint lies on the nodes."""

    name = models.CharField(max_length=120, unique=True, validators=[validate_name])
    num_layers = models.PositiveIntegerField(
        validators=[MinValueValidator(1), MaxValueValidator(MAX_LAYERS)]
    )
    activation_bytes_per_token = models.FloatField(validators=[validate_positive])
    token_bytes = models.FloatField(default=4, validators=[validate_positive])
    bytes_per_layer = models.FloatField(validators=[validate_positive])
    checkpoint = models.CharField(max_length=500, blank=True)
    max_context_tokens = models.PositiveIntegerField(
        default=2048, validators=[MinValueValidator(1)]
    )
    # Query heads, and key-value heads; null: unknown. Tensor parallelism splits them among ranks.
    num_heads = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)]
    )
    num_kv_heads = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)]
    )
    head_dim = models.PositiveIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    # Null: not known. The head's are those of the last norm alone where embeddings are tied.
    embedding_bytes = models.FloatField(null=True, blank=True, validators=[validate_not_negative])
    head_bytes = models.FloatField(null=True, blank=True, validators=[validate_not_negative])
    architecture = models.CharField(
        max_length=80, blank=True, db_default="", validators=[validate_text]
    )
    dtype = models.CharField(max_length=40, blank=True, db_default="", validators=[validate_text])
    # As its config.json was read; empty: nothing is known to prevent stages.
    why_not_split = models.CharField(
        max_length=300, blank=True, db_default="", validators=[validate_text]
    )
    # What computes its layers, where a deployment does not say.
    engine = models.CharField(
        max_length=8,
        choices=[(engine.value, engine.value) for engine in Engine],
        default=Engine.AUTO.value,
        db_default="auto",
    )
    # Passed to vLLM instances of the model that agents start.
    vllm_flags = models.CharField(max_length=1000, blank=True, validators=[validate_vllm_flags])
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def layers_bytes(self) -> float:
        """Weights of all layers."""
        return self.num_layers * self.bytes_per_layer

    @property
    def total_bytes(self) -> float:
        """Bytes of all known weights: layers, embedding and output head."""
        return self.layers_bytes + (self.embedding_bytes or 0) + (self.head_bytes or 0)


class Profile(InCluster):
    """Speed and KV room of one kind of node for one model; index j-1 is j layers held.

    `layer_times` (null: not measured), `batch_limits` and `instance_times`, of engines that serve
    the whole model, by degree, are written as in a problem file, and so is `memory`, what the
    model's ends leave (null: they cost nothing); the price is in any currency, the
    same for all of a cluster.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="profiles")
    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="profiles")
    name = models.CharField(max_length=PROFILE_NAME_LENGTH, validators=[validate_name])
    gpu = models.CharField(max_length=PROFILE_NAME_LENGTH, blank=True, validators=[validate_text])
    vram_bytes = models.FloatField(validators=[validate_positive])
    max_layers = models.PositiveIntegerField(validators=[MaxValueValidator(MAX_LAYERS)])
    tokens_per_s = models.JSONField(validators=[validate_curve])
    kv_capacity_token_layers = models.JSONField(validators=[validate_curve])
    layer_times = models.JSONField(null=True, blank=True)
    batch_limits = models.JSONField(null=True, blank=True)
    instance_times = models.JSONField(null=True, blank=True)
    memory = models.JSONField(null=True, blank=True)
    price_per_hour = models.FloatField(null=True, blank=True, validators=[validate_positive])
    origin = models.CharField(max_length=10, choices=Origin.choices, default=Origin.ESTIMATED)
    # Of a measurement: node, checkpoint, dtype, bytes_per_layer, engine, and kv_minimum if it was
    # chosen; null: not known.
    measured_under = models.JSONField(null=True, blank=True)
    recorded_at = models.DateTimeField(auto_now=True, null=True)
    not_by_people = ("measured_under",)

    class Meta:
        ordering = ["name"]
        constraints = [unique("profile_unique_in_cluster_and_model", "cluster", "model", "name")]

    def __str__(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        """Its name with that of its model, to distinguish profiles of one name."""
        return f"{self.name} ({self.model.name})"

    @property
    def steps(self) -> list[tuple[int, float, float, float]]:
        """(layers held, bytes of their weights, tokens/s, KV room in tokens x layers)."""
        curves = zip(self.tokens_per_s, self.kv_capacity_token_layers, strict=False)
        per_layer = self.model.bytes_per_layer
        found = [(layers, layers * per_layer, *step) for layers, step in enumerate(curves, 1)]
        return found[: self.max_layers]

    @property
    def first_tokens_per_s(self) -> float | None:
        """Throughput with one layer held; None when it can hold none."""
        return self.steps[0][2] if self.steps else None

    @property
    def last_tokens_per_s(self) -> float | None:
        """Throughput with as many layers as it can hold."""
        return self.steps[-1][2] if self.steps else None

    @property
    def weights_bytes(self) -> float:
        """Bytes of the weights of as many layers as it can hold."""
        return self.max_layers * self.model.bytes_per_layer

    @property
    def kv_bytes_per_token_layer(self) -> float | None:
        """Bytes of a token in one layer's KV cache; None: they do not follow from the curve.

        With each further layer held, its weights take room from the cache, so they follow from the
        curve itself: no other source is needed, and none is guessed.
        """
        rooms = [room for *_, room in self.steps]
        if len(rooms) < 2 or rooms[0] <= rooms[-1]:
            return None
        return self.model.bytes_per_layer * (len(rooms) - 1) / (rooms[0] - rooms[-1])

    @property
    def kv_room_bytes(self) -> float | None:
        """Bytes of the KV cache beside `weights_bytes`; None: they do not follow from the curve."""
        per_token = self.kv_bytes_per_token_layer
        if per_token is None:
            return None
        return min(self.steps[-1][3] * per_token, self.vram_bytes - self.weights_bytes)

    @property
    def left_bytes(self) -> float:
        """Bytes of memory left beside weights and cache."""
        return max(0.0, self.vram_bytes - self.weights_bytes - (self.kv_room_bytes or 0.0))


class ProfileVersion(InCluster):
    """One version of a profile; the one that plans use is copied into the `Profile`.

    `document` is a profile as in a problem file. `evidence` is what it was made from: a
    `NodeMeasurement` without the profile in it, or what traffic showed; null: unknown. `node` is
    where it was measured; empty: not measured.
    """

    cluster_path = "profile__cluster"

    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    origin = models.CharField(max_length=10, choices=Origin.choices)
    node = models.CharField(max_length=NAME_LENGTH, blank=True)
    document = models.JSONField()
    evidence = models.JSONField(null=True, blank=True)
    recorded_at = models.DateTimeField()

    class Meta:
        ordering = ["-number"]
        constraints = [unique("profile_version_unique_in_profile", "profile", "number")]

    def __str__(self) -> str:
        return f"{self.profile.name}, version {self.number}"


class Connection(InCluster):
    """A directed link from `source` to `target`. `recorded_at` is when its numbers were last
    written; null: before this was stored."""

    of_regions = False

    source = name_column()
    target = name_column()
    bandwidth_bytes_per_s = models.FloatField(validators=[validate_positive])
    latency_s = models.FloatField(validators=[validate_not_negative])
    origin = models.CharField(max_length=10, choices=Origin.choices, default=Origin.ESTIMATED)
    recorded_at = models.DateTimeField(auto_now=True, null=True)

    class Meta:
        abstract = True
        ordering = ["source", "target"]

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class Link(Connection):
    """A directed connection between two nodes, or a node and "coordinator", by name."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="links")

    class Meta(Connection.Meta):
        constraints = [unique("link_unique_in_cluster", "cluster", "source", "target")]


class RegionLink(Connection):
    """The connection of every pair of nodes in two regions that has no link of its own."""

    of_regions = True
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="region_links")

    class Meta(Connection.Meta):
        constraints = [unique("region_link_unique_in_cluster", "cluster", "source", "target")]


class SharedBandwidth(InCluster):
    """Bandwidth shared by all traffic that leaves or reaches its members, besides each link's own.

    Members are nodes, regions (all their nodes) or "coordinator", by name. See
    `planner.domain.cluster.SharedBandwidth` for the traffic that counts.
    """

    class Direction(models.TextChoices):
        EGRESS = "egress", gettext_lazy("out of its members")
        INGRESS = "ingress", gettext_lazy("into its members")

    class Scope(models.TextChoices):
        REGION = "region", gettext_lazy("only what crosses the border of the members")
        NIC = "nic", gettext_lazy("also what members send each other")

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="shared_bandwidths")
    name = name_column()
    members = models.JSONField(validators=[validate_members])
    direction = models.CharField(max_length=8, choices=Direction.choices)
    scope = models.CharField(max_length=8, choices=Scope.choices)
    bandwidth_bytes_per_s = models.FloatField(validators=[validate_positive])

    class Meta:
        ordering = ["name"]
        constraints = [unique("shared_bandwidth_unique_in_cluster", "cluster", "name")]

    def __str__(self) -> str:
        return self.name


class Change(InCluster):
    """One line of the change log: an action on a row, its actor, and the values before and after.

    `actor` is a name as it was then: of a user (by session or by `api_key`), of an agent or
    coordinator, or of the user who ran a command on the server; blank: the site itself. Rows that
    one action changed together share `batch`. Only values that differ are stored; `before` is null
    for an added row, `after` for a removed one, both for an event without changes. Lines of a
    removed cluster still have its name. Lines are never changed, and deleted only after the
    retention time of the log.
    """

    class Action(models.TextChoices):
        ADDED = "added"
        CHANGED = "changed"
        REMOVED = "removed"
        NOTED = "noted"
        REFUSED = "refused"

    class ActorKind(models.TextChoices):
        SITE = "site", gettext_lazy("the site")
        PERSON = "person", gettext_lazy("person")
        KEY = "key", gettext_lazy("API key")
        PROCESS = "process", gettext_lazy("process")
        COMMAND = "command", gettext_lazy("command")
        NOBODY = "nobody", gettext_lazy("nobody known")

    cluster = models.ForeignKey(
        Cluster, null=True, on_delete=models.SET_NULL, related_name="changes"
    )
    cluster_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    kind = models.CharField(max_length=40)
    row_id = models.BigIntegerField(default=0)
    name = models.CharField(max_length=200)
    action = models.CharField(max_length=8, choices=Action.choices)
    text = models.TextField(blank=True)
    actor = models.CharField(max_length=150, blank=True)
    actor_kind = models.CharField(
        max_length=8, choices=ActorKind.choices, default=ActorKind.SITE, db_default="site"
    )
    api_key = models.CharField(max_length=16, blank=True, db_default="")
    address = models.CharField(max_length=64, blank=True, db_default="")
    request_id = models.CharField(max_length=64, blank=True, db_default="")
    comment = models.CharField(max_length=200, blank=True, db_default="")
    batch = models.UUIDField(null=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["kind", "row_id"], name="change_of_row"),
            models.Index(fields=["cluster", "kind"], name="change_in_cluster"),
            models.Index(fields=["request_id"], name="change_of_request"),
            models.Index(fields=["at"], name="change_at"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.action}"
