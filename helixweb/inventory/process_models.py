"""Rows of machines: nodes, coordinators, and the tokens with which they join."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Value
from django.utils import timezone

from helixweb.access.scope import InCluster
from helixweb.inventory.columns import (
    MAX_MACHINES,
    NAME_LENGTH,
    PROFILE_NAME_LENGTH,
    TAG_LENGTH,
    VERSION_LENGTH,
    cluster_key,
    columns_of,
    name_column,
    unique,
)
from helixweb.inventory.validators import (
    validate_http_url,
    validate_node_name,
    validate_positive,
    validate_tag,
)
from planner import COORDINATOR


class NodeState(models.TextChoices):
    """State of the machine of a row."""

    DECLARED = "declared"
    ONLINE = "online"
    LOST = "lost"


def lost_after() -> timedelta:
    """The silence of a process that is more than a pause."""
    return timedelta(seconds=settings.HELIX_NODE_LOST_AFTER_S)


class Process(models.Model):
    """A process on a machine that joined with a token and dials in with a credential."""

    credential_hash = models.CharField(max_length=64, blank=True, db_index=True)
    data_endpoint = models.CharField(max_length=300, blank=True)
    data_public_key = models.CharField(max_length=40, blank=True)
    version = models.CharField(max_length=VERSION_LENGTH, blank=True)
    joined_at = models.DateTimeField(null=True, blank=True)
    last_seen_at = models.DateTimeField(null=True, blank=True)
    silence_announced = models.BooleanField(default=False)
    # A `Reach`: which data ports of the others it cannot reach; empty: it has reported none.
    reach = models.JSONField(
        default=dict, db_default=Value({}, models.JSONField()), blank=True, editable=False
    )

    class Meta:
        abstract = True

    @property
    def topic(self) -> str:
        """The event topic of its stream."""
        return f"{'agent' if isinstance(self, Node) else 'coordinator'}:{self.pk}"

    def state_at(self, now: datetime) -> NodeState:
        """Declared until it joins; lost after `HELIX_NODE_LOST_AFTER_S` of silence."""
        if self.joined_at is None or self.last_seen_at is None:
            return NodeState.DECLARED
        return NodeState.LOST if now - self.last_seen_at > lost_after() else NodeState.ONLINE

    @property
    def state(self) -> NodeState:
        return self.state_at(timezone.now())


def gpus_of(hardware: dict[str, Any] | None, declared: int) -> int:
    """Number of GPUs as its agent reported, else as declared; 1 if there are none."""
    return max(1, len(hardware.get("gpus", ()))) if hardware else max(1, declared)


class Node(InCluster, Process):
    """A machine. A user or a problem file declares it; it is real once its agent has joined.

    `price_per_hour` is set where it differs from its profile's. `declared_gpus`: how many it has
    according to a file; its agent's report takes precedence.
    """

    cluster = cluster_key("nodes")
    name = models.CharField(max_length=NAME_LENGTH, validators=[validate_node_name])
    region = name_column(default="local")
    profile_name = models.CharField(max_length=PROFILE_NAME_LENGTH, blank=True)
    price_per_hour = models.FloatField(null=True, blank=True, validators=[validate_positive])
    uuid = models.UUIDField(null=True, blank=True, unique=True)
    hardware = models.JSONField(null=True, blank=True)
    declared_gpus = models.PositiveIntegerField(default=1)
    not_by_people = ("uuid", "hardware", *(field.name for field in Process._meta.local_fields))

    class Meta:
        ordering = ["pk"]
        constraints = [unique("node_unique_in_cluster", "cluster", "name")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_emulated(self) -> bool:
        """True if its agent reports that it runs no model and takes times from a profile."""
        return bool((self.hardware or {}).get("emulated"))

    @property
    def gpus(self) -> int:
        """Devices that instances may share; a machine without a GPU counts as one."""
        return gpus_of(self.hardware, self.declared_gpus)

    @property
    def gpus_are_its_own(self) -> bool:
        """True if it computes on GPUs, which no other node of its machine has."""
        return bool((self.hardware or {}).get("gpus"))

    @property
    def host(self) -> str:
        """The host that others dial, which all nodes of a machine have in common."""
        return self.data_endpoint.removeprefix("tcp://").rpartition(":")[0]


# A file calls the number of GPUs `gpus`; REST and forms leave it to the agent.
NODE_COLUMNS = [name for name in columns_of(Node) if name != "declared_gpus"]


class CheckpointLook(InCluster):
    """A question to a node's agent: what lies at `path`? The caller deletes it, once it is answered
    or given up."""

    cluster_path = "node__cluster"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="checkpoint_looks")
    path = models.CharField(max_length=500)
    asked_at = models.DateTimeField()
    is_answered = models.BooleanField(default=False)
    facts = models.JSONField(null=True, blank=True)
    error = models.TextField(blank=True)


class Coordinator(InCluster, Process):
    """A process that faces chat clients; each of a cluster serves its plan by itself.

    `peer` is what the cluster's stages know it by, as long as the row lives.
    """

    cluster = cluster_key("coordinators")
    name = name_column()
    uuid = models.UUIDField(unique=True)
    http_url = models.CharField(max_length=300, blank=True, validators=[validate_http_url])
    peer = models.CharField(max_length=NAME_LENGTH, default=COORDINATOR, editable=False)

    class Meta:
        ordering = ["pk"]
        constraints = [
            unique("coordinator_unique_in_cluster", "cluster", "name"),
            unique("coordinator_peer_unique_in_cluster", "cluster", "peer"),
        ]

    def __str__(self) -> str:
        return self.name


class NodeTag(InCluster):
    """A tag by which users find nodes."""

    cluster_path = "node__cluster"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="tags")
    name = models.CharField(max_length=TAG_LENGTH, validators=[validate_tag])

    class Meta:
        ordering = ["name"]
        constraints = [unique("node_tag_unique_on_node", "node", "name")]

    def __str__(self) -> str:
        return self.name


class JoinToken(InCluster):
    """Admits as many machines as `machines` says; only the sha256 of `hlxj_…` is stored.

    `admitted` has a `[machine uuid, name]` for each process that joined with it, in order: several
    of one machine, one per GPU group, count once. A process that is its machine has "node UUID".
    `used_at`: when the last machine was admitted.
    """

    class Role(models.TextChoices):
        NODE = "node"
        COORDINATOR = "coordinator"

    cluster = cluster_key("join_tokens")
    role = models.CharField(max_length=12, choices=Role.choices)
    token_hash = models.CharField(max_length=64, unique=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    machines = models.PositiveSmallIntegerField(
        default=1, db_default=1, validators=[MinValueValidator(1), MaxValueValidator(MAX_MACHINES)]
    )
    admitted = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    used_at = models.DateTimeField(null=True, blank=True)
    used_by_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    secret = ""  # of a token that was created just now

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.cluster.name

    @property
    def machines_admitted(self) -> int:
        """Number of machines that joined with it."""
        return len({machine for machine, _name in self.admitted})

    @property
    def names_admitted(self) -> list[str]:
        """Names of the processes that joined with it, without duplicates, in order of joining."""
        named = [name for _machine, name in self.admitted]
        return list(dict.fromkeys(named or filter(None, [self.used_by_name])))
