"""REST: several models planned on one cluster at once."""

from typing import Any

from django.db.models import Prefetch
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from helixweb.common import jobs
from helixweb.common.refusals import Conflict
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.common.serializers import StrictFieldsMixin
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning.models import MixShare, ModelMix, PlanRun
from helixweb.planning.options import options_from_json
from helixweb.planning.serializers import FlowOptionsSerializer, PlanOptionsSerializer
from helixweb.planning.services import mixing


class WeightSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """A model, and its share: flows become large in the proportions of the weights."""

    model = serializers.PrimaryKeyRelatedField(queryset=LanguageModel.objects.all())
    weight = serializers.FloatField(min_value=0, default=1.0)


class ModelMixRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which models to plan on which cluster, and how to search."""

    cluster = serializers.PrimaryKeyRelatedField(queryset=Cluster.objects.all())
    models = WeightSerializer(many=True)
    options = FlowOptionsSerializer(default=dict)

    def validate_models(self, models: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [row["model"].name for row in models]
        for name in names:
            if names.count(name) > 1:
                raise serializers.ValidationError(f"Model {name} is named twice; keep one.")
        return models


class MixShareSerializer(serializers.ModelSerializer[MixShare]):
    class Meta:
        model = MixShare
        fields = ["model", "weight"]
        read_only_fields = fields


class ModelMixSerializer(serializers.ModelSerializer[ModelMix]):
    """`runs` are the finished plan runs, one for each model, once the mix has ended."""

    options = PlanOptionsSerializer(read_only=True)
    models = MixShareSerializer(source="shares", many=True, read_only=True)
    runs: serializers.PrimaryKeyRelatedField[PlanRun] = serializers.PrimaryKeyRelatedField(
        many=True, read_only=True
    )
    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True
    )

    class Meta:
        model = ModelMix
        fields = [
            "id", "cluster", "status", "attempt", "cancel_requested", "error", "options", "models",
            "level_tokens_per_s", "level_bound_tokens_per_s", "runs", "created_by", "created_at",
            "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class ModelMixViewSet(ReadViewSet[ModelMix]):
    queryset = ModelMix.objects.select_related("created_by").prefetch_related(
        "shares", Prefetch("runs", PlanRun.objects.unscoped().defer("problem").order_by("pk"))
    )
    serializer_class = ModelMixSerializer
    filterset_fields = ["cluster", "status", "created_at"]
    search_fields = ("cluster__name",)

    @extend_schema(request=ModelMixRequestSerializer, responses={202: ModelMixSerializer})
    def create(self, request: Request) -> Response:
        """Queue a plan for each of several models, no two of which use a node."""
        asked = ModelMixRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        mix = mixing.start_model_mix(
            cluster=asked.validated_data["cluster"],
            weights={row["model"]: row["weight"] for row in asked.validated_data["models"]},
            options=options_from_json(asked.validated_data["options"]),
            user=request.user,
        )
        where = reverse("api-model-mix-detail", args=[mix.pk], request=request)
        return Response(
            ModelMixSerializer(mix).data,
            status=status.HTTP_202_ACCEPTED,
            headers={"Location": where},
        )

    @extend_schema(request=None, responses={202: ModelMixSerializer})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """End the search; what it has is kept."""
        mix = self.get_object()
        if not jobs.cancel(mix):
            raise Conflict(f"Mix {pk} is {mix.status}; only a queued or running one can be.")
        return Response(ModelMixSerializer(mix).data, status=status.HTTP_202_ACCEPTED)
