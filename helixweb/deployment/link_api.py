"""REST for people: links of what a deployment serves, and the routing weights that follow them."""

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.common.rest.views import RestView
from helixweb.common.serializers import StrictFieldsMixin
from helixweb.deployment.keeping import keep_measured
from helixweb.deployment.link_view import link_rows
from helixweb.deployment.live_links import live_links
from helixweb.deployment.models import SERVING, Deployment, LinkWeights
from helixweb.deployment.weighing import hold_weights
from helixweb.inventory.models import Cluster


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


class LinkWeightsSerializer(serializers.ModelSerializer[LinkWeights]):
    """Routing weights for links that do other than planned (`rates`, bytes/s); not followed while
    `held`."""

    class Meta:
        model = LinkWeights
        fields = ["rates", "routing_weights", "flow_tokens_per_s", "held", "counts", "changed_at"]
        read_only_fields = fields


class LinksAtWorkSerializer(serializers.Serializer[Any]):
    """`weights` is null while every link does as planned since the deployment began."""

    links = LinkAtWorkSerializer(many=True)
    weights = LinkWeightsSerializer(allow_null=True)


class LinksAtWorkView(RestView):
    @extend_schema(responses=LinksAtWorkSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """What the links of a deployment do, and by which weights its requests are routed."""
        return _links_of(get_object_or_404(_deployments(), pk=pk))


class HoldingSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Whether requests are routed by the plan's weights whatever links do."""

    held = serializers.BooleanField()


class WeightsView(RestView):
    @extend_schema(request=HoldingSerializer, responses=LinksAtWorkSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Route by the plan's weights whatever links do, or let weights follow links again."""
        asked = HoldingSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        row = get_object_or_404(_deployments().filter(status__in=SERVING), pk=pk)
        held = asked.validated_data["held"]
        hold_weights(row, held=held, user=request.user, now=timezone.now())
        return _links_of(row)


class KeptSerializer(serializers.Serializer[Any]):
    """How many links have another rate than before."""

    kept = serializers.IntegerField()


class KeepMeasuredView(RestView):
    @extend_schema(request=None, responses=KeptSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Have the next plan count on what slow links of a cluster were measured to carry."""
        kept = keep_measured(get_object_or_404(Cluster, pk=pk), now=timezone.now())
        return Response(KeptSerializer({"kept": kept}).data)


def _deployments() -> QuerySet[Deployment]:
    rows = Deployment.objects.select_related("plan")
    return rows.defer("serving_plan", "plan__document", "plan__problem")


def _links_of(deployment: Deployment) -> Response:
    links = [link for link in live_links(deployment, now=timezone.now()) if link.is_at_work]
    weights = LinkWeights.objects.filter(
        deployment=deployment, generation=deployment.generation
    ).first()
    found = {"links": link_rows(deployment, links) if links else [], "weights": weights}
    return Response(LinksAtWorkSerializer(found).data)
