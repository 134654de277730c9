"""REST: live and recorded metrics, what limits, and what was predicted."""

from datetime import datetime, timedelta
from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from rest_framework import serializers

from helixweb.access.needs import VIEWER, needs
from helixweb.common.rest.views import RestView, answers
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.common.serializers import StrictFieldsMixin
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.agreement import Quantity, agreement_of
from helixweb.monitoring.bottleneck import Limit
from helixweb.monitoring.history import (
    FIELDS,
    KEEP_ROLLUPS,
    has_simulated,
    points,
    smallest_step_s,
)
from helixweb.monitoring.models import NUMBERS, MetricSample, TracedRequest
from helixweb.monitoring.moment import Moment, finding_of
from helixweb.monitoring.request_pages import RequestFilter
from helixweb.monitoring.services import traced_requests

DEFAULT_LENGTH = timedelta(minutes=5)


class NodeSampleSerializer(serializers.Serializer[Any]):
    kv_used_pages = serializers.IntegerField(allow_null=True)
    kv_total_pages = serializers.IntegerField(allow_null=True)
    sequences = serializers.IntegerField(allow_null=True)
    busy_ratio = serializers.FloatField(allow_null=True)
    tokens_per_s = serializers.FloatField(allow_null=True)
    flow_share = serializers.FloatField(allow_null=True)
    kv_promised_ratio = serializers.FloatField(allow_null=True)


class SampleSerializer(serializers.ModelSerializer[MetricSample]):
    """What the coordinator reported last. Percentiles are null while nothing finished."""

    cluster = serializers.IntegerField(source="cluster_id")
    simulated = serializers.BooleanField(help_text="The simulator made it, no coordinator.")
    nodes = serializers.DictField(child=NodeSampleSerializer(), source="node_numbers")

    class Meta:
        model = MetricSample
        fields = ("cluster", "at", "simulated", *NUMBERS, "nodes")


class PointSerializer(serializers.Serializer[Any]):
    """One step from `at` on: means, but maxima of the 95th percentiles."""

    at = serializers.DateTimeField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        numbers = {name: serializers.FloatField(allow_null=True) for name in FIELDS}
        return {**super().get_fields(), **numbers}


class SeriesSerializer(serializers.Serializer[Any]):
    cluster = serializers.IntegerField()
    since = serializers.DateTimeField()
    step_s = serializers.IntegerField()
    simulated = serializers.BooleanField(help_text="Whether any of it is of simulated traffic.")
    points = PointSerializer(many=True)


class SeriesQuerySerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """`since` defaults to five minutes ago, `step` (seconds) to at most 900 points."""

    since = serializers.DateTimeField(required=False)
    step = serializers.IntegerField(required=False, min_value=1, max_value=86_400)


class LatestQuerySerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    cluster = serializers.IntegerField(min_value=1)


class FindingSerializer(serializers.Serializer[Any]):
    """What limits; `subject` is the node or link at fault, empty if none is."""

    limit = serializers.ChoiceField(choices=[limit.value for limit in Limit])
    subject = serializers.CharField()
    headline = serializers.CharField()
    evidence = serializers.CharField()
    advice = serializers.CharField()


class FigureSerializer(serializers.Serializer[Any]):
    """Tokens/s, or seconds, at the load there was."""

    quantity = serializers.ChoiceField(
        choices=[quantity.value for quantity in Quantity], source="name"
    )
    predicted = serializers.FloatField(allow_null=True)
    measured = serializers.FloatField(allow_null=True)
    holds = serializers.BooleanField(allow_null=True)


class NodeStepsSerializer(serializers.Serializer[Any]):
    """`longer`: a share of what its profile says; `error`: one standard error of that."""

    name = serializers.CharField()
    profile = serializers.CharField()
    predicted_ms = serializers.FloatField(source="predicted", allow_null=True)
    measured_ms = serializers.FloatField(source="measured", allow_null=True)
    longer = serializers.FloatField(source="off", allow_null=True)
    error = serializers.FloatField(allow_null=True)
    estimated = serializers.BooleanField(help_text="Its profile was not measured.")
    holds = serializers.BooleanField(allow_null=True)


class LinkRateSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    counted_bytes_per_s = serializers.FloatField(source="predicted")
    measured_bytes_per_s = serializers.FloatField(source="measured")
    seen_full = serializers.BooleanField(source="is_sure")
    holds = serializers.BooleanField(allow_null=True)


class MeanTokensSerializer(serializers.Serializer[Any]):
    phase = serializers.CharField(source="name")
    planned = serializers.FloatField(source="predicted")
    measured = serializers.FloatField(allow_null=True)
    holds = serializers.BooleanField(allow_null=True)


class BrokenSerializer(serializers.Serializer[Any]):
    """An assumption that does not hold, and what to do."""

    text = serializers.CharField()
    advice = serializers.CharField()
    node = serializers.CharField()


class AgreementSerializer(serializers.Serializer[Any]):
    """Predicted against measured; `running`: requests at once on average over the last minute."""

    running = serializers.FloatField(allow_null=True)
    figures = FigureSerializer(many=True)
    nodes = NodeStepsSerializer(many=True)
    links = LinkRateSerializer(many=True)
    lengths = MeanTokensSerializer(many=True)
    broken = BrokenSerializer(many=True)


@needs(VIEWER, of=Cluster)
class SeriesView(RestView):
    @answers(SeriesSerializer, takes=SeriesQuerySerializer, is_get=True)
    def get(self, cluster: Cluster, since: datetime | None = None, step: int = 1) -> dict[str, Any]:
        """A cluster's metrics over time, at most seven days back and at most 900 points.

        A step without a report has no point.
        """
        now = timezone.now()
        since = max(since or now - DEFAULT_LENGTH, now - KEEP_ROLLUPS)
        step_s = max(step, smallest_step_s(since=since, now=now))
        found = [
            {"at": point.at, **point.values}
            for point in points(cluster, since=since, until=now, step_s=step_s)
            if point.values is not None
        ]
        return {
            "cluster": cluster.pk,
            "since": since,
            "step_s": step_s,
            "simulated": has_simulated(cluster, since=since),
            "points": found,
        }


@needs(VIEWER)
class LatestView(RestView):
    @answers(SampleSerializer, takes=LatestQuerySerializer, is_get=True, of_row=False)
    def get(self, cluster: int) -> MetricSample:
        """The newest sample of a cluster, with every node; its `at` says how old it is."""
        row = get_object_or_404(Cluster.objects.within(self.request), pk=cluster)
        sample = Moment(row, timezone.now()).latest
        if sample is None:
            raise Http404(
                f"Cluster {row} has no metrics of the last 24 hours; "
                "its coordinator reports once it has joined."
            )
        return sample


@needs(VIEWER, of=Cluster)
class BottleneckView(RestView):
    @answers(FindingSerializer, is_get=True)
    def get(self, cluster: Cluster) -> Any:
        """What limits a cluster now, in words."""
        finding = finding_of(Moment(cluster, timezone.now()))
        if finding is None:
            raise Http404(f"Cluster {cluster} serves nothing, or its coordinator does not report.")
        return finding


@needs(VIEWER, of=Deployment)
class PredictionsView(RestView):
    def rows(self) -> Any:
        return Deployment.light(self.request)

    @answers(AgreementSerializer, is_get=True)
    def get(self, deployment: Deployment) -> Any:
        """What was predicted of a deployment at its load, what is measured, and what to do."""
        return agreement_of(deployment, now=timezone.now())


class TracedRequestSerializer(serializers.ModelSerializer[TracedRequest]):
    """Times in seconds. `tpot_s` is null unless the answer is complete and has two tokens."""

    nodes = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = TracedRequest
        fields = (
            "request", "cluster", "arrived_at", "generation", "model_name", "outcome",
            "prompt_tokens", "output_tokens", "queue_s", "ttft_s", "tpot_s", "e2e_s", "attempts",
            "nodes",
        )  # fmt: skip


class TracedRequestDetailSerializer(TracedRequestSerializer):
    """With its parts, which add up to `e2e_s`, its time line and when its tokens came."""

    parts = serializers.JSONField(source="detail.parts", read_only=True)
    rows = serializers.JSONField(source="detail.rows", read_only=True)
    token_times_s = serializers.ListField(
        source="detail.token_times_s", child=serializers.FloatField(), read_only=True
    )

    class Meta(TracedRequestSerializer.Meta):
        fields = (  # type: ignore[assignment]
            *TracedRequestSerializer.Meta.fields, "parts", "rows", "token_times_s"
        )  # fmt: skip


class RequestApiFilter(RequestFilter):
    """As on the page, but in order as all lists are."""

    order = None


@needs(VIEWER)
class TracedRequestViewSet(ReadViewSet[TracedRequest]):
    """Requests of the last day that their coordinators traced, newest first."""

    queryset = TracedRequest.objects.all()
    serializer_class = TracedRequestSerializer
    filterset_class = RequestApiFilter
    search_fields = ("request", "model_name", "outcome")
    lookup_field = "request"
    lookup_url_kwarg = "number"
    lookup_value_regex = "[0-9a-f]{16}"

    def get_queryset(self) -> Any:
        if self.action == "retrieve":
            return TracedRequest.objects.within(self.request)
        rows = traced_requests(self.request).select_related(None)
        return rows.defer("detail", "transfers_s")

    def get_serializer_class(self) -> type[serializers.BaseSerializer[TracedRequest]]:
        if self.action == "retrieve":
            return TracedRequestDetailSerializer
        return TracedRequestSerializer
