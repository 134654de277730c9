"""REST: simulations of plans."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from helixweb.common import jobs
from helixweb.common.options import rest_field
from helixweb.common.refusals import Conflict
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.common.serializers import StrictFieldsMixin
from helixweb.planning import options
from helixweb.planning.models import Plan, Simulation
from helixweb.planning.services import simulating
from helixweb.planning.services.simulating import MAX_BURST_SIZE, MAX_SHARE, MIN_SHARE


class SimulationRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which plan to serve what. `share` is of the plan's peak, when requests always wait."""

    plan = serializers.PrimaryKeyRelatedField(queryset=Plan.objects.all())
    workload = serializers.ChoiceField(
        choices=Simulation.Workload.choices, default=Simulation.Workload.BACKLOG
    )
    share = serializers.FloatField(
        min_value=MIN_SHARE, max_value=MAX_SHARE, allow_null=True, default=None
    )
    burst_size = serializers.IntegerField(
        min_value=1, max_value=MAX_BURST_SIZE, allow_null=True, default=None
    )
    policy = serializers.ChoiceField(
        choices=Simulation.Policy.choices, default=Simulation.Policy.RUNTIME
    )
    seed = rest_field(options.OPTIONS["seed"])


class SimulationSerializer(serializers.ModelSerializer[Simulation]):
    """`forecast` is null until it has ended; its times are in seconds, its shares 0 to 1."""

    forecast = serializers.JSONField(read_only=True)
    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True
    )

    class Meta:
        model = Simulation
        fields = [
            "id", "plan", "status", "progress", "error", "workload", "share", "burst_size",
            "policy", "seed", "requests_per_s", "forecast", "created_by", "created_at",
            "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class SimulationViewSet(ReadViewSet[Simulation]):
    queryset = Simulation.objects.select_related("created_by", "plan").defer(
        "plan__problem", "plan__document"
    )
    serializer_class = SimulationSerializer
    filterset_fields = ["plan", "status", "workload", "policy", "created_at"]
    search_fields = ("plan__cluster__name", "plan__model__name")

    @extend_schema(request=SimulationRequestSerializer, responses={202: SimulationSerializer})
    def create(self, request: Request) -> Response:
        """Queue a simulation of a plan."""
        asked = SimulationRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        row = simulating.start_simulation(**asked.validated_data, user=request.user)
        where = reverse("api-simulation-detail", args=[row.pk], request=request)
        return Response(
            SimulationSerializer(row).data,
            status=status.HTTP_202_ACCEPTED,
            headers={"Location": where},
        )

    @extend_schema(request=None, responses={202: SimulationSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End a simulation; nothing of it is kept."""
        row = self.get_object()
        if not jobs.cancel(row):
            raise Conflict(f"Simulation {pk} is {row.status}; only one under way can be cancelled.")
        return Response(SimulationSerializer(row).data, status=status.HTTP_202_ACCEPTED)
