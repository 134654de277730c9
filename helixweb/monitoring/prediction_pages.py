"""Predicted against measured of a deployment: the page, and the same by REST."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.access.needs import VIEWER, needs
from helixweb.common import events
from helixweb.common.rest.views import RestView
from helixweb.deployment.models import Deployment
from helixweb.monitoring.predictions import agreement_of
from helixweb.monitoring.serializers import AgreementSerializer
from helixweb.planning.stored import stored_plan


@needs(VIEWER, of=Deployment)
@never_cache
def predictions(request: HttpRequest, pk: int) -> HttpResponse:
    """What the plan's assumptions are worth now, and what to do."""
    last_event_id = events.latest_id()
    deployment = _deployment(request, pk)
    agreement = agreement_of(deployment, now=timezone.now())
    ids = dict(deployment.cluster.nodes.values_list("name", "pk"))
    context = {
        "deployment": deployment,
        "agreement": agreement,
        "has_instances": bool(stored_plan(deployment.plan).instances),
        "broken": [(line, ids.get(line.node)) for line in agreement.broken],
        "last_event_id": last_event_id,
    }
    return render(request, "monitoring/predictions.html", context)


@needs(VIEWER, of=Deployment)
class PredictionsView(RestView):
    @extend_schema(responses=AgreementSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """What was predicted of a deployment at its load, what is measured, and what to do."""
        agreement = agreement_of(_deployment(request, pk), now=timezone.now())
        return Response(AgreementSerializer(agreement).data)


def _deployment(request: HttpRequest | Request, pk: int) -> Deployment:
    rows = Deployment.objects.within(request).select_related("cluster", "plan", "model")
    return get_object_or_404(rows.defer("serving_plan", "plan__document", "plan__problem"), pk=pk)
