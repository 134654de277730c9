"""REST for people: deployments."""

from collections.abc import Callable
from typing import Any

from django.db.models import Prefetch
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from rest_framework import mixins
from rest_framework.serializers import BaseSerializer

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.options import options_from
from helixweb.common.rest.operations import answers, get, post
from helixweb.common.rest.views import RestView
from helixweb.common.rest.viewsets import DeleteViewSet, ReadViewSet
from helixweb.deployment.instances import instances_view
from helixweb.deployment.link_weights import hold_weights
from helixweb.deployment.links import keep_slow_rates, weights_of, working_links
from helixweb.deployment.models import SERVING, Deployment, Drain, NodeAssignment, Profiling, Repair
from helixweb.deployment.node_log import log_tail
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.profiling import cancel_profiling, measure_cluster, order_profiling
from helixweb.deployment.serializers import (
    DeploymentSerializer,
    DeployRequestSerializer,
    DrainSerializer,
    HoldingSerializer,
    KeptSerializer,
    LinksAtWorkSerializer,
    LogQuerySerializer,
    MeasureSerializer,
    NodeLogLineSerializer,
    ProfilingSerializer,
    RepairSerializer,
)
from helixweb.deployment.services import deploying, draining, repairing
from helixweb.deployment.stages import timeline_of
from helixweb.inventory.models import Cluster, Node
from helixweb.planning.models import Plan
from runtime.protocol.log_levels import LogLevel

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
