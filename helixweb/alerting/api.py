"""REST: alerts, rules, channels, silences, deliveries."""

from typing import Any

from django.utils import timezone

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
from helixweb.common.rest.operations import post
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.inventory.api import RowViewSet


@needs(VIEWER, OPERATOR)
class AlertViewSet(ReadViewSet[Alert]):
    """What fires, what may soon, and what was over within a month; the newest first."""

    queryset = Alert.objects.select_related("rule").order_by("-pk")
    serializer_class = AlertSerializer
    search_fields = ("subject", "rule__name")
    filterset_fields = ["cluster", "rule", "state", "severity", "subject", "rule__kind"]
    changing_by_itself = ("value", "text", "state", "fired_at", "resolved_at", "flaps", "silenced")

    @post(AlertSerializer, takes=AcknowledgeSerializer)
    def acknowledge(self, alert: Alert, **given: Any) -> Alert:
        """Say that you look after it."""
        by = self.request.user.get_username()
        return services.acknowledge(alert, by=by, now=timezone.now(), **given)


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

    @post(DeliverySerializer, status=202)
    def test(self, channel: Channel) -> Delivery:
        """Send something, to see whether it arrives; its delivery tells."""
        return deliveries.test_channel(channel, now=timezone.now())

    @post(SecretSerializer)
    def new_secret(self, channel: Channel) -> dict[str, str]:
        """Another secret for its signatures, shown this once."""
        return {"secret": services.replace_secret(channel)}


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

    @post(DeliverySerializer, status=202)
    def again(self, row: Delivery) -> Delivery:
        """Try one that failed again, under its old number."""
        if not deliveries.again(row, now=timezone.now()):
            raise Conflict(f"This delivery is {row.status}; only one that failed is sent again.")
        row.refresh_from_db()
        return row
