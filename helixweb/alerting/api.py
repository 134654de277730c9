"""REST: alerts, rules, channels, silences, deliveries."""

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.alerting import deliveries, services
from helixweb.alerting.models import Alert, AlertRule, Channel, Delivery, Silence
from helixweb.alerting.serializers import (
    AcknowledgeSerializer,
    AlertSerializer,
    ChannelSerializer,
    DeliverySerializer,
    RuleSerializer,
    SecretSerializer,
    SilenceSerializer,
)
from helixweb.common.refusals import Conflict
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.common.serializers import checked
from helixweb.inventory.api import RowViewSet


@needs(VIEWER, OPERATOR)
class AlertViewSet(ReadViewSet[Alert]):
    """What fires, what may soon, and what was over within a month; the newest first."""

    queryset = Alert.objects.select_related("rule").order_by("-pk")
    serializer_class = AlertSerializer
    search_fields = ("subject", "rule__name")
    filterset_fields = ["cluster", "rule", "state", "severity", "subject", "rule__kind"]
    changing_by_itself = ("value", "text", "state", "fired_at", "resolved_at", "flaps", "silenced")

    @extend_schema(request=AcknowledgeSerializer, responses=AlertSerializer)
    @action(detail=True, methods=["post"], filter_backends=[])
    def acknowledge(self, request: Request, pk: str) -> Response:
        """Say that you look after it."""
        given = checked(AcknowledgeSerializer, request)
        by = request.user.get_username()
        row = services.acknowledge(self.get_object(), by=by, now=timezone.now(), **given)
        return Response(AlertSerializer(row).data)


@needs(VIEWER, OPERATOR)
class RuleViewSet(RowViewSet):
    queryset = AlertRule.objects.prefetch_related("channels").order_by("pk")
    serializer_class = RuleSerializer
    search_fields = ("name",)


@needs(OPERATOR, OPERATOR)
class ChannelViewSet(RowViewSet):
    queryset = Channel.objects.order_by("pk")
    serializer_class = ChannelSerializer
    search_fields = ("name",)
    changing_by_itself = ("failures", "disabled_why")

    @extend_schema(request=None, responses={202: DeliverySerializer})
    @action(detail=True, methods=["post"], filter_backends=[])
    def test(self, request: Request, pk: str) -> Response:
        """Send something, to see whether it arrives; its delivery tells."""
        made = deliveries.test_channel(self.get_object(), now=timezone.now())
        return Response(DeliverySerializer(made).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses=SecretSerializer)
    @action(detail=True, methods=["post"], url_path="new-secret", filter_backends=[])
    def new_secret(self, request: Request, pk: str) -> Response:
        """Another secret for its signatures, shown this once."""
        return Response({"secret": services.new_secret(self.get_object())})


@needs(VIEWER, OPERATOR)
class SilenceViewSet(RowViewSet):
    queryset = Silence.objects.order_by("-pk")
    serializer_class = SilenceSerializer
    search_fields = ("subject", "comment")


@needs(VIEWER, OPERATOR)
class DeliveryViewSet(ReadViewSet[Delivery]):
    """What was told and what is to be, the newest first; with every try."""

    queryset = Delivery.objects.prefetch_related("attempts").order_by("-pk")
    serializer_class = DeliverySerializer
    search_fields = ("channel__name",)
    filterset_fields = ["channel", "channel__cluster", "occasion", "status"]
    changing_by_itself = (
        "status", "attempt", "error", "next_try_at", "finished_at", "attempts", "told",
    )  # fmt: skip

    @extend_schema(request=None, responses={202: DeliverySerializer})
    @action(detail=True, methods=["post"], filter_backends=[])
    def again(self, request: Request, pk: str) -> Response:
        """Try one that failed anew, under its old number."""
        row = self.get_object()
        if not deliveries.again(row, now=timezone.now()):
            raise Conflict(f"This delivery is {row.status}; only one that failed is sent again.")
        row.refresh_from_db()
        return Response(DeliverySerializer(row).data, status=status.HTTP_202_ACCEPTED)
