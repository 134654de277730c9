"""REST: alerts, rules, channels, silences, deliveries."""

from typing import Any

from django.db import models
from django.utils import timezone
from rest_framework import serializers

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.alerting import deliveries, services
from helixweb.alerting.models import Alert, AlertRule, Channel, Delivery, DeliveryAttempt, Silence
from helixweb.common.refusals import Conflict
from helixweb.common.rest.views import post
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.common.serializers import ShownOnce, ShownSerializer, StrictFieldsMixin
from helixweb.inventory.api import RowViewSet
from helixweb.inventory.columns import columns_of
from helixweb.inventory.serializers import RowSerializer


class RuleSerializer(RowSerializer):
    """`channels`: none means all of the cluster's."""

    unit = serializers.CharField(read_only=True)

    class Meta:
        model = AlertRule
        fields = ["id", "cluster", *columns_of(AlertRule), "unit", "channels"]
        extra_kwargs = {"channels": {"required": False}}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        row: Any = self.instance
        cluster = attrs.get("cluster") or row.cluster
        for channel in attrs.get("channels", ()):
            if channel.cluster_id != cluster.pk:
                raise serializers.ValidationError(
                    {"channels": [f"Channel {channel} is of another cluster."]}
                )
        return attrs


class ChannelSerializer(RowSerializer):
    """`secret` signs what is posted; it is in the answer to its making, and then no more."""

    secret = ShownOnce()

    class Meta:
        model = Channel
        read_only_fields = ["failures", "disabled_why", "created_at"]
        fields = ["id", "cluster", *columns_of(Channel), *read_only_fields, "secret"]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        row: Any = self.instance
        if row is not None and attrs.get("way", row.way) != row.way:
            raise serializers.ValidationError(
                {"way": ["A channel keeps its way; create another for the other way."]}
            )
        return attrs


class SecretSerializer(serializers.Serializer[Any]):
    secret = serializers.CharField(read_only=True)


class SilenceSerializer(RowSerializer):
    """Without `rule` of all rules, without `subject` of all subjects; it begins now unless told."""

    starts_at = serializers.DateTimeField(required=False)

    class Meta:
        model = Silence
        fields = ["id", "cluster", "rule", "subject", "starts_at", "ends_at", "comment"]

    def create(self, validated_data: dict[str, Any]) -> models.Model:
        asked_by = self.context["request"].user
        return super().create(
            {"starts_at": timezone.now(), "created_by": asked_by, **validated_data}
        )


class AlertSerializer(ShownSerializer[Alert]):
    rule_name = serializers.CharField(source="rule.name", read_only=True)
    kind = serializers.CharField(source="rule.kind", read_only=True)
    text = serializers.SerializerMethodField()

    class Meta:
        model = Alert
        fields = [
            "id", "cluster", "rule", "rule_name", "kind", "subject", "severity", "state", "value",
            "text", "since", "fired_at", "resolved_at", "flaps", "silenced", "acknowledged_at",
            "acknowledged_by", "comment",
        ]  # fmt: skip

    def get_text(self, row: Alert) -> str:
        return str(row.said.get("text", ""))


class AcknowledgeSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    comment = serializers.CharField(
        max_length=Alert._meta.get_field("comment").max_length, allow_blank=True, default=""
    )


class AttemptSerializer(ShownSerializer[DeliveryAttempt]):
    class Meta:
        model = DeliveryAttempt
        fields = ["attempt", "at", "took_s", "code", "error"]


class DeliverySerializer(ShownSerializer[Delivery]):
    """`told`: the changes of alerts that the message is about."""

    attempts = AttemptSerializer(many=True, read_only=True)
    told = serializers.ListField(child=serializers.DictField(), read_only=True)

    class Meta:
        model = Delivery
        fields = [
            "id", "channel", "occasion", "number", "told", "status", "attempt", "error",
            "created_at", "next_try_at", "finished_at", "attempts",
        ]  # fmt: skip


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
