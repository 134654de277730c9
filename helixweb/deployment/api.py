"""REST for people: deployments."""

from collections.abc import Callable
from typing import Any

from django.db.models import Prefetch
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from rest_framework import mixins, serializers
from rest_framework.serializers import BaseSerializer

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.options import OptionsSerializer, options_from
from helixweb.common.rest.views import RestView, answers, get, post
from helixweb.common.rest.viewsets import DeleteViewSet, ReadViewSet
from helixweb.common.serializers import CreatedBy, RowKey, ShownSerializer, StrictFieldsMixin
from helixweb.deployment.backends import check_backend
from helixweb.deployment.links import hold_weights, keep_slow_rates, weights_of, working_links
from helixweb.deployment.log_models import NodeLogLine
from helixweb.deployment.models import (
    SERVING,
    Deployment,
    Drain,
    LinkWeights,
    NodeAssignment,
    Profiling,
    Repair,
)
from helixweb.deployment.node_log import KEPT_LINES, log_tail
from helixweb.deployment.options import OPTION_NAMES, DeployOptions
from helixweb.deployment.profiling import cancel_profiling, measure_cluster, order_profiling
from helixweb.deployment.services import deploying, draining, repairing
from helixweb.deployment.stages import instances_view, timeline_of
from helixweb.inventory.models import Cluster, LanguageModel, Node, NodeState
from helixweb.planning.models import Plan
from runtime.protocol.engines import Engine
from runtime.protocol.log_levels import LogLevel


class AssignmentSerializer(ShownSerializer[NodeAssignment]):
    """One node's layers [first, end), and how far it is with the present generation."""

    first = serializers.IntegerField(source="desired.first", read_only=True)
    end = serializers.IntegerField(source="desired.end", read_only=True)
    tensor_parallel = serializers.IntegerField(
        source="desired.tensor_parallel", read_only=True, help_text="Ranks that share each layer."
    )
    engine = serializers.CharField(
        source="desired.engine", default=Engine.AUTO.value, read_only=True,
        help_text="What the deployment asks the node to compute its layers with.",
    )  # fmt: skip
    emulated = serializers.BooleanField(
        source="node.is_emulated", default=False, read_only=True,
        help_text="The node runs no model but takes its times from a profile.",
    )  # fmt: skip
    node_state = serializers.SerializerMethodField()
    stats = serializers.DictField(read_only=True, allow_null=True)
    fetch = serializers.DictField(
        source="weights.fetch", default=None, read_only=True, allow_null=True,
        help_text="Weights that the node lacked: needed_bytes, bytes fetched by source, the "
        "source in use, and eta_s, the seconds that are left.",
    )  # fmt: skip
    instances = serializers.ListField(
        child=serializers.DictField(),
        read_only=True,
        help_text="Whole-model instances that the node runs instead of a stage.",
    )
    observed_instances = serializers.ListField(
        child=serializers.DictField(), read_only=True, help_text="What its agent says of them."
    )

    class Meta:
        model = NodeAssignment
        fields = [
            "node", "node_name", "node_state", "emulated", "first", "end", "tensor_parallel",
            "engine", "observed_generation", "phase", "message", "loaded_ratio", "fetch", "stats",
            "instances", "observed_instances", "updated_at",
        ]  # fmt: skip

    def get_node_state(self, assignment: NodeAssignment) -> NodeState | None:
        """Null: the node was removed from the cluster."""
        return assignment.node.state_at(timezone.now()) if assignment.node else None


class DeploymentSerializer(ShownSerializer[Deployment]):
    created_by = CreatedBy()
    tensor_parallel_by_node = serializers.DictField(
        child=serializers.IntegerField(), read_only=True
    )
    engine_by_node = serializers.DictField(child=serializers.CharField(), read_only=True)
    backend_by_node = serializers.DictField(child=serializers.CharField(), read_only=True)
    assignments = AssignmentSerializer(many=True, read_only=True)

    class Meta:
        model = Deployment
        fields = [
            "id", "cluster", "plan", "model", "model_name", "checkpoint", "pinned_checkpoint",
            "generation", "status", "message", "emulated", *OPTION_NAMES, "created_by",
            "created_at", "ready_at", "ended_at", "pushed_at", "follows_generation", "took_over_at",
            "paused_at", "assignments",
        ]  # fmt: skip
        extra_kwargs = {
            "pinned_checkpoint": {
                "help_text": "With the commit that all stages load; empty for a path, and for a "
                "name whose commit the site could not look up."
            }
        }


class DrainSerializer(StrictFieldsMixin, serializers.ModelSerializer[Drain]):
    """A node that must take no requests and hold nothing.

    So many `requests` still run through it (null: no coordinator has told yet); `needed`: no way
    leads around it, so that new ones do, too, until layers are elsewhere.
    """

    node = RowKey(
        queryset=Node.objects.select_related("cluster"),
        # the service reports a duplicate with the remedy
        validators=[],
    )
    node_name = serializers.CharField(source="node.name", read_only=True)
    state = serializers.ChoiceField(choices=Drain.State.choices, read_only=True)
    created_by = CreatedBy()

    class Meta:
        model = Drain
        fields = [
            "id", "node", "node_name", "state", "requests", "needed", "began_at", "let_go_at",
            "drained_at", "created_by",
        ]  # fmt: skip
        read_only_fields = [name for name in fields if name != "node"]


class RepairSerializer(ShownSerializer[Repair]):
    """What is done about nodes that a deployment lost, or that joined since its plan was made.

    `flow_tokens_per_s` instead of `unmoved_tokens_per_s` for `moved_bytes` of layers to load; null
    until the search has ended.
    """

    lost = serializers.ListField(child=serializers.CharField(), read_only=True)
    added = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Repair
        fields = [
            "id", "deployment", "state", "lost", "added", "run", "unmoved_tokens_per_s",
            "flow_tokens_per_s", "moved_bytes", "why", "noticed_at",
        ]  # fmt: skip


class DeployRequestSerializer(OptionsSerializer):
    """Which plan, and how its stages must run; what is left out takes its default."""

    of = DeployOptions
    plan = RowKey(queryset=Plan.objects.all())
    backend_by_node = serializers.DictField(
        child=serializers.CharField(validators=[check_backend]),
        default=dict,
        help_text="Node to what runs its instances, where it is not the plan's: helix, vllm, "
        "transformers, or the URL of a server that is there.",
    )


class ProfilingSerializer(StrictFieldsMixin, serializers.ModelSerializer[Profiling]):
    """An order to measure a node for a model, how far it is, and about how long it still takes."""

    left_s = serializers.SerializerMethodField()

    class Meta:
        model = Profiling
        fields = [
            "id", "node", "model", "state", "done", "left_s", "message", "version", "like",
            "created_by", "created_at", "began_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = [
            "state", "done", "message", "version", "like", "created_by", "created_at", "began_at",
            "ended_at",
        ]  # fmt: skip
        validators: tuple[()] = ()  # the service reports an existing one

    def get_left_s(self, row: Profiling) -> float | None:
        return row.left_s_at(timezone.now())


class MeasureSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """For which model all nodes of a cluster are measured; `again`: those with a fresh
    measurement, too."""

    model = RowKey(queryset=LanguageModel.objects.all())
    again = serializers.BooleanField(default=False)


class NodeLogLineSerializer(ShownSerializer[NodeLogLine]):
    """A line of a node's log, `at` by the node's clock."""

    level = serializers.ChoiceField(
        source="level_name", choices=[level.value for level in LogLevel], read_only=True
    )

    class Meta:
        model = NodeLogLine
        fields = ["id", "at", "source", "level", "text"]


class LogQuerySerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which lines of a node's log: the last `limit` of at least `level`."""

    level = serializers.ChoiceField(
        choices=[level.value for level in LogLevel], default=LogLevel.DEBUG.value
    )
    limit = serializers.IntegerField(min_value=1, max_value=KEPT_LINES, default=200)


class LinkAtWorkSerializer(serializers.Serializer[Any]):
    """A directed link as its sender told of it `age_s` ago, beside what the plan counts on.

    `measured_bytes_per_s` is a floor as long as the link was not seen full; null: not measured.
    """

    source = serializers.CharField()  # type: ignore[assignment]
    target = serializers.CharField()
    planned_bytes_per_s = serializers.FloatField(allow_null=True)
    measured_bytes_per_s = serializers.FloatField(
        source="stats.bandwidth_bytes_per_s", allow_null=True
    )
    measured_age_s = serializers.FloatField(source="stats.bandwidth_age_s", allow_null=True)
    is_floor = serializers.BooleanField(source="stats.bandwidth_is_floor")
    rtt_s = serializers.FloatField(source="stats.rtt_s", allow_null=True)
    queueing_s = serializers.FloatField(source="stats.queueing_s")
    queued_bytes = serializers.IntegerField()
    urgent_bytes_per_s = serializers.FloatField(source="stats.urgent_bytes_per_s")
    bulk_bytes_per_s = serializers.FloatField(source="stats.bulk_bytes_per_s")
    slow = serializers.BooleanField()
    stalled = serializers.BooleanField(source="stats.stalled")
    age_s = serializers.FloatField()


class LinkWeightsSerializer(ShownSerializer[LinkWeights]):
    """Routing weights for links that do other than planned (`rates`, bytes/s); not followed while
    `held`."""

    class Meta:
        model = LinkWeights
        fields = ["rates", "routing_weights", "flow_tokens_per_s", "held", "counts", "changed_at"]


class LinksAtWorkSerializer(serializers.Serializer[Any]):
    """`weights` is null while every link does as planned since the deployment began."""

    links = LinkAtWorkSerializer(many=True)
    weights = LinkWeightsSerializer(allow_null=True)


class HoldingSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Whether requests are routed by the plan's weights even if links are slow."""

    held = serializers.BooleanField()


class KeptSerializer(serializers.Serializer[Any]):
    """How many links have another rate than before."""

    kept = serializers.IntegerField()


# Done once the nodes have followed.
_BEGINS: dict[str, Any] = {"gives": DeploymentSerializer, "begins": "api-deployment-detail"}


def _order(name: str, act: Callable[..., Deployment | None], doc: str, **declared: Any) -> Any:
    """An action that does this to a row, and answers with what `act` returns, else with the row."""

    def do(self: Any, row: Any) -> Any:
        return act(row, user=self.request.user, now=timezone.now()) or self.get_object()

    do.__name__, do.__doc__ = name, doc
    return post(**{"gives": DeploymentSerializer, **declared})(do)


@needs(VIEWER, OPERATOR)
class DeploymentViewSet(ReadViewSet[Deployment]):
    queryset = Deployment.objects.select_related("model", "created_by").prefetch_related(
        # Of deployments that are within reach.
        Prefetch("assignments", NodeAssignment.objects.select_related("node"))
    )
    serializer_class = DeploymentSerializer
    filterset_fields = ["cluster", "plan", "model", "status", "emulated", "created_at"]
    search_fields = ("cluster__name", "model_name", "message")

    @answers(**_BEGINS, takes=DeployRequestSerializer, of_row=False)
    def create(self, plan: Plan, **given: Any) -> Deployment:
        """Make a plan what its cluster runs; what ran there before is superseded."""
        options = options_from(DeployOptions, given)
        return deploying.deploy(plan, user=self.request.user, options=options, now=timezone.now())

    stop = _order("stop", deploying.stop, "Have every node let go of its layers.", **_BEGINS)
    roll_back = _order(
        "roll_back",
        deploying.roll_back,
        "Deploy again what served on the cluster before it, with its options.",
        **_BEGINS,
    )
    pause = _order(
        "pause",
        deploying.pause,
        "Let new requests wait; those that run go on to their end, and layers stay loaded.",
    )
    resume = _order("resume", deploying.resume, "Let in what waits.")

    @get(OpenApiTypes.OBJECT)
    def instances(self, deployment: Deployment) -> dict[str, Any]:
        """How its whole-model instances are, and what coordinators send them; empty without any."""
        view = instances_view(deployment, now=timezone.now())
        return {"instances": [] if view is None else view["rows"]}

    @get(OpenApiTypes.OBJECT)
    def timeline(self, deployment: Deployment) -> dict[str, Any]:
        """When every node was in which phase, as Plotly draws it, as a sentence and as a table."""
        return timeline_of(deployment, now=timezone.now()).document


@needs(VIEWER, OPERATOR)
class DrainViewSet(mixins.CreateModelMixin, DeleteViewSet[Drain]):
    """Nodes that must take no requests and hold nothing; DELETE takes one in again."""

    queryset = Drain.objects.select_related("node", "created_by")
    serializer_class = DrainSerializer
    filterset_fields = ["node", "node__cluster", "needed", "began_at", "drained_at"]
    search_fields = ("node__name",)
    changing_by_itself = ("state", "requests", "needed", "let_go_at", "drained_at")

    def perform_create(self, serializer: BaseSerializer[Drain]) -> None:
        node = serializer.validated_data["node"]
        serializer.instance = draining.drain(node, user=self.request.user, now=timezone.now())

    def perform_destroy(self, instance: Drain) -> None:
        draining.take_in(instance, user=self.request.user, now=timezone.now())


@needs(VIEWER, OPERATOR)
class ProfilingViewSet(mixins.CreateModelMixin, DeleteViewSet[Profiling]):
    """Nodes measured beside what they serve; DELETE cancels one that has not ended."""

    queryset = Profiling.objects.select_related("node__cluster", "model")
    serializer_class = ProfilingSerializer
    filterset_fields = ["node", "node__cluster", "model", "state", "created_at"]
    search_fields = ("node__name", "model__name", "message")
    changing_by_itself = ("state", "done", "message")

    def perform_create(self, serializer: BaseSerializer[Profiling]) -> None:
        given = serializer.validated_data
        serializer.instance = order_profiling(
            given["node"], given["model"], user=self.request.user, now=timezone.now()
        )

    def perform_destroy(self, instance: Profiling) -> None:
        cancel_profiling(instance, now=timezone.now())


@needs(change=OPERATOR, of=Cluster)
class MeasureView(RestView):
    @answers([ProfilingSerializer], takes=MeasureSerializer, status=202)
    def post(self, cluster: Cluster, **given: Any) -> list[Profiling]:
        """Measure all nodes of a cluster that lack a fresh measurement for the model: those of
        different machines at once, those that share cores in turn."""
        return measure_cluster(cluster, user=self.request.user, now=timezone.now(), **given)


@needs(VIEWER, OPERATOR)
class RepairViewSet(ReadViewSet[Repair]):
    queryset = Repair.objects.select_related("deployment__cluster", "run__plan__model")
    serializer_class = RepairSerializer
    filterset_fields = ["deployment", "deployment__cluster", "state", "noticed_at"]
    search_fields = ("deployment__model_name", "deployment__cluster__name", "why")

    deploy = _order("deploy", repairing.accept, "Deploy the placement that is offered.", **_BEGINS)
    dismiss = _order(
        "dismiss", repairing.dismiss, "Leave the layers where they are.", gives=RepairSerializer
    )


@needs(VIEWER, of=Node)
class NodeLogView(RestView):
    """The last lines that a node's agent and stage logged, the newest last."""

    @answers([NodeLogLineSerializer], takes=LogQuerySerializer, is_get=True)
    def get(self, node: Node, level: str, limit: int) -> Any:
        return log_tail(node, level=LogLevel(level), count=limit)


@needs(VIEWER, of=Deployment)
class LinksAtWorkView(RestView):
    def rows(self) -> Any:
        return Deployment.light(self.request)

    @answers(LinksAtWorkSerializer, is_get=True)
    def get(self, deployment: Deployment) -> dict[str, Any]:
        """What the links of a deployment do, and by which weights its requests are routed."""
        return _links_of(deployment)


@needs(change=OPERATOR, of=Deployment)
class WeightsView(RestView):
    def rows(self) -> Any:
        return Deployment.light(self.request).filter(status__in=SERVING)

    @answers(LinksAtWorkSerializer, takes=HoldingSerializer)
    def post(self, deployment: Deployment, held: bool) -> dict[str, Any]:
        """Route by the plan's weights even if links are slow, or let weights follow links again."""
        hold_weights(deployment, held=held, user=self.request.user, now=timezone.now())
        return _links_of(deployment)


@needs(change=OPERATOR, of=Cluster)
class KeepMeasuredView(RestView):
    @answers(KeptSerializer)
    def post(self, cluster: Cluster) -> dict[str, int]:
        """Have the next plan count on what slow links of a cluster were measured to carry."""
        return {"kept": keep_slow_rates(cluster, now=timezone.now())}


def _links_of(deployment: Deployment) -> dict[str, Any]:
    links = working_links(deployment, now=timezone.now())
    return {"links": links, "weights": weights_of(deployment)}
