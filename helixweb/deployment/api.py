"""REST for people: deployments."""

from collections.abc import Callable
from typing import Any

from django.db.models import Prefetch
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.serializers import BaseSerializer

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.options import options_from
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
from runtime.protocol.log_levels import LogLevel


def _given(asked: BaseSerializer[Any]) -> Any:
    asked.is_valid(raise_exception=True)
    return asked.validated_data


def _accepted(deployment: Deployment, request: Request) -> Response:
    """Its nodes begin; where to look for it."""
    where = reverse("api-deployment-detail", args=[deployment.pk], request=request)
    return Response(
        DeploymentSerializer(deployment).data,
        status=status.HTTP_202_ACCEPTED,
        headers={"Location": where},
    )


def _order(
    name: str, act: Callable[..., Deployment | None], doc: str,
    shows: type[BaseSerializer[Any]] = DeploymentSerializer, *, begins: bool = False,
) -> Any:  # fmt: skip
    """An action that does this to a row, and answers with what `act` returns, else with the row.

    `begins`: it is done once the nodes have followed.
    """

    def do(self: Any, request: Request, pk: str) -> Response:
        row = act(self.get_object(), user=request.user, now=timezone.now()) or self.get_object()
        return _accepted(row, request) if begins else Response(shows(row).data)

    do.__name__, do.__doc__ = name.replace("-", "_"), doc
    made = action(detail=True, methods=["post"], url_path=name, url_name=name)(do)
    return extend_schema(request=None, responses={202 if begins else 200: shows})(made)


@needs(VIEWER, OPERATOR)
class DeploymentViewSet(ReadViewSet[Deployment]):
    queryset = (
        Deployment.objects.select_related("model", "created_by")
        .defer("serving_plan")
        .prefetch_related(
            # Of deployments that are within reach.
            Prefetch("assignments", NodeAssignment.objects.select_related("node"))
        )
    )
    serializer_class = DeploymentSerializer
    filterset_fields = ["cluster", "plan", "model", "status", "emulated", "created_at"]
    search_fields = ("cluster__name", "model_name", "message")

    @extend_schema(request=DeployRequestSerializer, responses={202: DeploymentSerializer})
    def create(self, request: Request) -> Response:
        """Make a plan what its cluster runs; what ran there before is superseded."""
        given = _given(DeployRequestSerializer(data=request.data, context={"request": request}))
        deployment = deploying.deploy(
            given["plan"],
            user=request.user,
            options=options_from(DeployOptions, given),
            now=timezone.now(),
        )
        return _accepted(deployment, request)

    stop = _order("stop", deploying.stop, "Have every node let go of its layers.", begins=True)
    roll_back = _order(
        "roll-back",
        deploying.roll_back,
        "Deploy again what served on the cluster before it, with its options.",
        begins=True,
    )
    pause = _order(
        "pause",
        deploying.pause,
        "Let new requests wait; those that run go on to their end, and layers stay loaded.",
    )
    resume = _order("resume", deploying.resume, "Let in what waits.")

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True, filter_backends=[])
    def instances(self, request: Request, pk: str) -> Response:
        """How its whole-model instances are, and what coordinators send them; empty without any."""
        view = instances_view(self.get_object(), now=timezone.now())
        return Response({"instances": [] if view is None else view["rows"]})

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(detail=True, filter_backends=[])
    def timeline(self, request: Request, pk: str) -> Response:
        """When every node was in which phase, as Plotly draws it, as a sentence and as a table."""
        chart = timeline_of(self.get_object(), now=timezone.now())
        return Response(
            {**chart.figure, "summary": chart.summary, "columns": chart.columns, "rows": chart.rows}
        )


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
    @extend_schema(request=MeasureSerializer, responses={202: ProfilingSerializer(many=True)})
    def post(self, request: Request, pk: int) -> Response:
        """Measure all nodes of a cluster that lack a fresh measurement for the model: those of
        different machines at once, those that share cores in turn."""
        given = _given(MeasureSerializer(data=request.data))
        rows = measure_cluster(
            get_object_or_404(Cluster.objects.within(request), pk=pk),
            given["model"],
            user=request.user,
            now=timezone.now(),
            again=given["again"],
        )
        return Response(ProfilingSerializer(rows, many=True).data, status=status.HTTP_202_ACCEPTED)


@needs(VIEWER, OPERATOR)
class RepairViewSet(ReadViewSet[Repair]):
    queryset = Repair.objects.select_related("deployment__cluster", "run__plan__model")
    serializer_class = RepairSerializer
    filterset_fields = ["deployment", "deployment__cluster", "state", "noticed_at"]
    search_fields = ("deployment__model_name", "deployment__cluster__name", "why")

    deploy = _order(
        "deploy", repairing.accept, "Deploy the placement that is offered.", begins=True
    )
    dismiss = _order(
        "dismiss", repairing.dismiss, "Leave the layers where they are.", RepairSerializer
    )


@needs(VIEWER, of=Node)
class NodeLogView(RestView):
    """The last lines that a node's agent and stage logged, the newest last."""

    def query_parameters(self) -> tuple[str, ...]:
        return ("level", "limit")

    @extend_schema(parameters=[LogQuerySerializer], responses=NodeLogLineSerializer(many=True))
    def get(self, request: Request, pk: int) -> Response:
        node = get_object_or_404(Node.objects.within(request), pk=pk)
        given = _given(LogQuerySerializer(data=request.query_params.dict()))
        level, limit = LogLevel(given["level"]), given["limit"]
        lines = log_tail(node, level=level, count=limit)
        return Response(NodeLogLineSerializer(lines, many=True).data)


@needs(VIEWER, of=Deployment)
class LinksAtWorkView(RestView):
    @extend_schema(responses=LinksAtWorkSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """What the links of a deployment do, and by which weights its requests are routed."""
        return _links_of(get_object_or_404(Deployment.light(request), pk=pk))


@needs(change=OPERATOR, of=Deployment)
class WeightsView(RestView):
    @extend_schema(request=HoldingSerializer, responses=LinksAtWorkSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Route by the plan's weights even if links are slow, or let weights follow links again."""
        given = _given(HoldingSerializer(data=request.data))
        row = get_object_or_404(Deployment.light(request), pk=pk, status__in=SERVING)
        held = given["held"]
        hold_weights(row, held=held, user=request.user, now=timezone.now())
        return _links_of(row)


@needs(change=OPERATOR, of=Cluster)
class KeepMeasuredView(RestView):
    @extend_schema(request=None, responses=KeptSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Have the next plan count on what slow links of a cluster were measured to carry."""
        cluster = get_object_or_404(Cluster.objects.within(request), pk=pk)
        kept = keep_slow_rates(cluster, now=timezone.now())
        return Response(KeptSerializer({"kept": kept}).data)


def _links_of(deployment: Deployment) -> Response:
    links = working_links(deployment, now=timezone.now())
    found = {"links": links, "weights": weights_of(deployment)}
    return Response(LinksAtWorkSerializer(found).data)
