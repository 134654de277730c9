"""REST: live and recorded metrics, what limits, and what was predicted."""

from datetime import timedelta

from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.access.needs import VIEWER, needs
from helixweb.common.rest.views import RestView
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import (
    KEEP_ROLLUPS,
    has_simulated,
    latest_sample,
    points,
    smallest_step_s,
)
from helixweb.monitoring.load import finding_of
from helixweb.monitoring.moment import Moment
from helixweb.monitoring.predictions import agreement_of, to_compare
from helixweb.monitoring.serializers import (
    AgreementSerializer,
    FindingSerializer,
    LatestQuerySerializer,
    SampleSerializer,
    SeriesQuerySerializer,
    SeriesSerializer,
)

DEFAULT_LENGTH = timedelta(minutes=5)


@needs(VIEWER, of=Cluster)
class SeriesView(RestView):
    def query_parameters(self) -> tuple[str, ...]:
        return ("since", "step")

    @extend_schema(parameters=[SeriesQuerySerializer], responses=SeriesSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """A cluster's metrics over time, at most seven days back and at most 900 points.

        A step without a report has no point.
        """
        cluster = get_object_or_404(Cluster.objects.within(request), pk=pk)
        asked = SeriesQuerySerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        now = timezone.now()
        since = max(asked.validated_data.get("since", now - DEFAULT_LENGTH), now - KEEP_ROLLUPS)
        step_s = max(asked.validated_data.get("step", 1), smallest_step_s(since=since, now=now))
        found = [
            {"at": point.at, **point.values}
            for point in points(cluster, since=since, until=now, step_s=step_s)
            if point.values is not None
        ]
        series = {
            "cluster": cluster.pk,
            "since": since,
            "step_s": step_s,
            "simulated": has_simulated(cluster, since=since),
            "points": found,
        }
        return Response(SeriesSerializer(series).data)


@needs(VIEWER)
class LatestView(RestView):
    def query_parameters(self) -> tuple[str, ...]:
        return ("cluster",)

    @extend_schema(parameters=[LatestQuerySerializer], responses=SampleSerializer)
    def get(self, request: Request) -> Response:
        """The newest sample of a cluster, with every node; its `at` says how old it is."""
        asked = LatestQuerySerializer(data=request.query_params)
        asked.is_valid(raise_exception=True)
        cluster = get_object_or_404(
            Cluster.objects.within(request), pk=asked.validated_data["cluster"]
        )
        sample = latest_sample(cluster)
        if sample is None:
            raise Http404(
                f"Cluster {cluster} has no metrics of the last 24 hours; "
                "its coordinator reports once it has joined."
            )
        return Response(SampleSerializer(sample).data)


@needs(VIEWER, of=Cluster)
class BottleneckView(RestView):
    @extend_schema(responses=FindingSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """What limits a cluster now, in words."""
        cluster = get_object_or_404(Cluster.objects.within(request), pk=pk)
        finding = finding_of(Moment(cluster, timezone.now()))
        if finding is None:
            raise Http404(f"Cluster {cluster} serves nothing, or its coordinator does not report.")
        return Response(FindingSerializer(finding).data)


@needs(VIEWER, of=Deployment)
class PredictionsView(RestView):
    @extend_schema(responses=AgreementSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """What was predicted of a deployment at its load, what is measured, and what to do."""
        deployment = get_object_or_404(to_compare(request), pk=pk)
        return Response(AgreementSerializer(agreement_of(deployment, now=timezone.now())).data)
