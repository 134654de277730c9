"""Rows of deployments."""

from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q, Value

from helixweb.access.scope import WHOLE_SITE, InCluster
from helixweb.deployment.log_models import NodeLogLine as NodeLogLine  # Django looks here
from helixweb.deployment.options import OPTION_NAMES, DeployOptions
from helixweb.inventory.columns import cluster_key, unique
from helixweb.planning.models import Replan, value_of_point
from helixweb.planning.objectives import ObjectiveFigure, objective_figure
from planner import DEFAULT_THETA
from runtime.protocol.engine_names import Engine
from runtime.protocol.phases import Phase

_LEAST_DONE = 0.05  # of a measurement, before its duration can be estimated

_EMPTY = Value({}, models.JSONField())
PHASES = [(phase.value, phase.value) for phase in Phase]
# In the timeline only: the agent is silent, or no coordinator reaches the stage any more.
LOST = "lost"


class Status(models.TextChoices):
    DEPLOYING = "deploying"
    READY = "ready"
    DEGRADED = "degraded"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"


# The nodes must run it.
SERVING = frozenset({Status.DEPLOYING, Status.READY, Status.DEGRADED, Status.FAILED})
# The cluster is busy with it.
LIVE = SERVING | {Status.STOPPING}


class Deployment(InCluster):
    """A plan at work in its cluster.

    `generation` grows within the cluster with every change of what the nodes must run, also when
    the deployment is stopped; what a generation says never changes. `serving_plan` is the
    coordinator's ServingPlan; the columns before it are `options.DeployOptions`. What is taken from
    the model's row is a copy: who edits a model does not mean what serves.
    """

    large = ("serving_plan",)

    cluster = cluster_key("deployments")
    plan = models.ForeignKey("planning.Plan", on_delete=models.RESTRICT, related_name="deployments")
    model = models.ForeignKey(
        "inventory.LanguageModel", on_delete=models.RESTRICT, related_name="deployments"
    )
    model_name = models.CharField(max_length=120)
    # As the user wrote it, and with the commit that its name resolved to; empty without one.
    checkpoint = models.CharField(max_length=500)
    pinned_checkpoint = models.CharField(max_length=600, blank=True, db_default="")
    generation = models.PositiveIntegerField()
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.DEPLOYING)
    message = models.TextField(blank=True)
    page_tokens = models.PositiveIntegerField()
    max_batch_tokens = models.PositiveIntegerField()
    kv_high_water = models.FloatField()
    max_queued_requests = models.PositiveIntegerField()
    max_context_tokens = models.PositiveIntegerField()
    tensor_parallel = models.PositiveIntegerField(default=1)
    tensor_parallel_by_node = models.JSONField(default=dict)
    # What computes layers: on all nodes, and on those that are named.
    engine = models.CharField(max_length=8, default=Engine.AUTO.value, db_default="auto")
    engine_by_node = models.JSONField(default=dict, db_default=_EMPTY, blank=True)
    # What runs a node's instances, where it is not what the plan says: a backend, or a URL.
    backend_by_node = models.JSONField(default=dict)
    theta = models.FloatField(default=DEFAULT_THETA)
    # Some of its nodes run no model but take its times from a profile.
    emulated = models.BooleanField(default=False)
    serving_plan = models.JSONField()
    # Where coordinators listen for stages; the addresses of the nodes are in the serving plan.
    coordinator_peers = models.JSONField(default=list)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    # When this generation was made, and when its processes were notified of it.
    changed_at = models.DateTimeField()
    pushed_at = models.DateTimeField(null=True, blank=True)
    # The generation that serves until this one is ready, and when it ended; null: there is none.
    follows_generation = models.PositiveIntegerField(null=True, blank=True)
    took_over_at = models.DateTimeField(null=True, blank=True)
    # New requests wait since then; null: they are admitted.
    paused_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            unique("deployment_generation_unique_in_cluster", "cluster", "generation"),
            unique("deployment_one_live_in_cluster", "cluster", among=Q(status__in=sorted(LIVE))),
        ]

    def __str__(self) -> str:
        return f"deployment {self.pk} of {self.model_name}"

    @classmethod
    def light(cls, scope: Any) -> "models.QuerySet[Deployment]":
        """Deployments in scope with their cluster, plan and model, without long documents."""
        return cls.objects.within(scope).select_related("cluster", "model", "plan")

    @classmethod
    def serving(cls, cluster_id: int) -> "Deployment | None":
        """The deployment that the cluster's nodes must run; None without one."""
        return cls.light(WHOLE_SITE).filter(cluster=cluster_id, status__in=SERVING).first()

    @classmethod
    def live(cls, cluster_id: int) -> "Deployment | None":
        """The live deployment of the cluster; None without one."""
        return cls.light(WHOLE_SITE).filter(cluster=cluster_id, status__in=LIVE).first()

    @property
    def options(self) -> DeployOptions:
        """The options that it was deployed with."""
        return DeployOptions(**{name: getattr(self, name) for name in OPTION_NAMES})

    @property
    def stage_checkpoint(self) -> str:
        """The checkpoint of stages and coordinators: one version for all, if pinned."""
        return self.pinned_checkpoint or self.checkpoint

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def is_changing(self) -> bool:
        """True if the previous generation may still serve, or nodes may still hold its layers."""
        return self.follows_generation is not None and self.took_over_at is None

    @property
    def topic(self) -> str:
        return f"deployment:{self.pk}"


class NodeAssignment(InCluster):
    """What one node must run in a deployment, and its progress.

    `desired` is the StageAssignment of the deployment's generation, without its peers. What the
    agent reports of an older generation is not stored here, so `phase` is idle until it answers
    the present one. The row outlives its node. With `instances`, AssignedInstance without keys, it
    runs these instead of the stage; `observed_instances` is its agent's last report of them.
    `weights` is a NodeWeights: what it fetches and serves; empty: its agent reported none.
    """

    cluster_path = "deployment__cluster"

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="assignments")
    node = models.ForeignKey(
        "inventory.Node", null=True, on_delete=models.SET_NULL, related_name="assignments"
    )
    node_name = models.CharField(max_length=64)
    desired = models.JSONField()
    instances = models.JSONField(default=list)
    observed_instances = models.JSONField(default=list)
    observed_generation = models.PositiveIntegerField(default=0)
    phase = models.CharField(max_length=10, choices=PHASES, default=Phase.IDLE.value)
    message = models.TextField(blank=True)
    loaded_ratio = models.FloatField(null=True, blank=True)
    stats = models.JSONField(null=True, blank=True)
    weights = models.JSONField(default=dict, db_default=_EMPTY, blank=True, editable=False)
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [unique("assignment_unique_in_deployment", "deployment", "node_name")]


class PhaseChange(InCluster):
    """A node entered `phase`, or was lost; the timeline of a deployment."""

    cluster_path = "assignment__deployment__cluster"

    assignment = models.ForeignKey(NodeAssignment, models.CASCADE, related_name="phase_changes")
    phase = models.CharField(max_length=10, choices=[*PHASES, (LOST, LOST)])
    message = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["at", "pk"]


class LinkWeights(InCluster):
    """Routing weights of a deployment's generation for links whose rates differ from the plan.

    `rates` are the bytes/s of those links, by "source->target"; empty: the plan's weights are used,
    as they are while `held`, on a user's request.
    """

    cluster_path = "deployment__cluster"

    deployment = models.OneToOneField(Deployment, models.CASCADE, related_name="link_weights")
    generation = models.PositiveIntegerField()
    rates = models.JSONField(default=dict)
    routing_weights = models.JSONField(default=dict)
    flow_tokens_per_s = models.FloatField()
    held = models.BooleanField(default=False)
    changed_at = models.DateTimeField()

    @property
    def counts(self) -> bool:
        """Whether requests are routed by these."""
        return bool(self.rates) and not self.held


class Repair(InCluster):
    """A repair for nodes that a deployment lost, or that joined since its plan was made.

    `lost` and `added` are names of nodes, in order; `left_out` those that the search planned
    without, being away. `run` found the placement that is offered or deployed, with
    `flow_tokens_per_s` instead of `unmoved_tokens_per_s` for `moved_bytes` of layers to load; of
    plans with instances these are predicted output tokens/s. `why` says what failed or ended it.
    """

    cluster_path = "deployment__cluster"

    class State(models.TextChoices):
        WAITING = "waiting"
        COMPUTING = "computing"
        OFFERED = "offered"
        DEPLOYED = "deployed"
        NEEDLESS = "needless"
        FAILED = "failed"
        DISMISSED = "dismissed"
        OVERTAKEN = "overtaken"

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="repairs")
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING)
    lost = models.JSONField(default=list)
    added = models.JSONField(default=list)
    left_out = models.JSONField(default=list)
    run = models.ForeignKey("planning.PlanRun", null=True, on_delete=models.SET_NULL)
    unmoved_tokens_per_s = models.FloatField(null=True)
    flow_tokens_per_s = models.FloatField(null=True)
    moved_bytes = models.FloatField(null=True)
    why = models.TextField(blank=True)
    noticed_at = models.DateTimeField()

    class Meta:
        ordering = ["-pk"]
        constraints = [
            unique(
                "repair_one_open_in_deployment",
                "deployment",
                among=Q(state__in=["waiting", "computing", "offered"]),
            )
        ]

    @property
    def values(self) -> tuple[float, float]:
        """The objective's value without the repair and with it."""
        replan: Replan | None = getattr(self.run, "replan", None)
        if replan is None:
            return self.unmoved_tokens_per_s or 0.0, self.flow_tokens_per_s or 0.0
        worth = {point["moved_bytes"]: value_of_point(point) for point in replan.points}
        return worth.get(0.0, 0.0), worth[self.moved_bytes]

    @property
    def figures(self) -> list[ObjectiveFigure]:
        """The same in words."""
        goal = "flow" if self.run is None else self.run.goal
        return [objective_figure(goal, value) for value in self.values]


# Not dealt with yet.
OPEN = frozenset({Repair.State.WAITING, Repair.State.COMPUTING, Repair.State.OFFERED})


class Drain(InCluster):
    """A node that must take no requests and hold nothing, until a user ends the drain.

    From the coordinators' last reports: `requests` that still ran through it (null: none reported
    yet), and whether it was `needed`, as there was no route around it. At `let_go_at`, when nothing
    was left to run there, it was ordered to hold nothing; at `drained_at` it held nothing.
    """

    cluster_path = "node__cluster"

    class State(models.TextChoices):
        DRAINING = "draining"
        LETTING_GO = "letting go"
        DRAINED = "drained"

    node = models.OneToOneField("inventory.Node", on_delete=models.CASCADE, related_name="drain")
    requests = models.PositiveIntegerField(null=True)
    needed = models.BooleanField(default=False)
    began_at = models.DateTimeField()
    let_go_at = models.DateTimeField(null=True)
    drained_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ["pk"]

    @property
    def state(self) -> State:
        if self.drained_at is not None:
            return self.State.DRAINED
        return self.State.DRAINING if self.let_go_at is None else self.State.LETTING_GO


class Profiling(InCluster):
    """An order to measure a node for a model beside what it serves, and how far that is.

    `done` is a share, `message` why it waits or failed; `version` is what was found. `began_at`:
    when its agent took the order. `may_check`: what was measured of a node of the same kind is
    enough, if a few steps take as long here; `like` is that measurement.
    """

    cluster_path = "node__cluster"

    class State(models.TextChoices):
        ORDERED = "ordered"
        WAITING = "waiting"
        MEASURING = "measuring"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    node = models.ForeignKey("inventory.Node", on_delete=models.CASCADE, related_name="profilings")
    model = models.ForeignKey("inventory.LanguageModel", on_delete=models.CASCADE)
    state = models.CharField(max_length=10, choices=State.choices, default=State.ORDERED)
    done = models.FloatField(default=0.0)
    message = models.TextField(blank=True)
    version = models.ForeignKey("inventory.ProfileVersion", models.SET_NULL, null=True, blank=True)
    may_check = models.BooleanField(default=False, db_default=False)
    like = models.ForeignKey(
        "inventory.ProfileVersion", models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField()
    began_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            unique(
                "profiling_one_open_on_node",
                "node",
                among=Q(state__in=["ordered", "waiting", "measuring"]),
            )
        ]

    def whole_s_at(self, now: datetime) -> float | None:
        """Seconds that it will have taken, by how far it is; None: not known."""
        if self.began_at is None or self.done < _LEAST_DONE:
            return None
        return (now - self.began_at).total_seconds() / self.done

    def left_s_at(self, now: datetime) -> float | None:
        """Seconds until it ends, by how far it is; None: not known."""
        whole_s = self.whole_s_at(now) if self.is_open else None
        return None if whole_s is None else whole_s * (1 - self.done)

    @property
    def is_open(self) -> bool:
        return self.state in STANDING


# Orders that the node's agent still has to follow.
STANDING = frozenset({Profiling.State.ORDERED, Profiling.State.WAITING, Profiling.State.MEASURING})


class LatestReport(InCluster):
    """The last CoordinatorReport of a coordinator."""

    cluster_path = "coordinator__cluster"

    coordinator = models.OneToOneField(
        "inventory.Coordinator", on_delete=models.CASCADE, related_name="latest_report"
    )
    report = models.JSONField()
    at = models.DateTimeField()

    def says(self, field: str) -> Any:
        """A field of the report; its default if an earlier release stored the report without it."""
        from runtime.protocol.control import CoordinatorReport  # loads pydantic

        return self.report.get(field, CoordinatorReport.model_fields[field].default)
