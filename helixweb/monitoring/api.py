"""REST: live and recorded metrics, what limits, and what was predicted."""

from datetime import datetime, timedelta
from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone

from helixweb.access.needs import VIEWER, needs
from helixweb.common.rest.operations import answers
from helixweb.common.rest.views import RestView
from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Cluster
from helixweb.monitoring.history import (
    KEEP_ROLLUPS,
    has_simulated,
    points,
    smallest_step_s,
)
from helixweb.monitoring.load import finding_of
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.moment import Moment
from helixweb.monitoring.predictions import agreement_of
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
