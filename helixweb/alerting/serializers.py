"""Alerting as JSON. Writing goes through `services`; unknown fields are refused."""

from typing import Any, ClassVar

from django.db import models
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from helixweb.alerting import services
from helixweb.alerting.models import Alert, AlertRule, Channel, Delivery, DeliveryAttempt, Silence
from helixweb.common.serializers import StrictFieldsMixin
from helixweb.inventory.serializers import RowSerializer
from helixweb.inventory.services.errors import NameTaken


class _RowSerializer(RowSerializer):
    services: ClassVar[Any] = services

    def save(self, **kwargs: Any) -> Any:
        try:
            return super().save(**kwargs)
        except NameTaken as error:
            raise serializers.ValidationError({"name": [str(error)]}) from error


class RuleSerializer(_RowSerializer):
    """`channels`: none means all of the cluster's."""

    unit = serializers.CharField(read_only=True)

    class Meta:
        model = AlertRule
        fields = [
            "id", "cluster", "name", "kind", "threshold", "clears_at", "unit", "for_s", "resolve_s",
            "severity", "enabled", "channels",
        ]  # fmt: skip
        extra_kwargs = {"channels": {"required": False}}


class ChannelSerializer(_RowSerializer):
    """`secret` signs what is posted; it is in the answer to its making, and then no more."""

    secret = serializers.SerializerMethodField()

    class Meta:
        model = Channel
        fields = [
            "id", "cluster", "name", "way", "url", "addresses", "enabled", "send_resolved",
            "least_severity", "alive_every_s", "failures", "disabled_why", "created_at", "secret",
        ]  # fmt: skip
        read_only_fields = ["failures", "disabled_why", "created_at"]

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_secret(self, row: Channel) -> str | None:
        return row.shown_secret or None

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        row: Any = self.instance
        if row is not None and attrs.get("way", row.way) != row.way:
            raise serializers.ValidationError(
                {"way": ["A channel keeps its way; create another for the other way."]}
            )
        return attrs


class SecretSerializer(serializers.Serializer[Any]):
    secret = serializers.CharField(read_only=True)


class SilenceSerializer(_RowSerializer):
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


class AlertSerializer(serializers.ModelSerializer[Alert]):
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
        read_only_fields = fields

    def get_text(self, row: Alert) -> str:
        return str(row.said.get("text", ""))


class AcknowledgeSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    comment = serializers.CharField(
        max_length=Alert._meta.get_field("comment").max_length, allow_blank=True, default=""
    )


class AttemptSerializer(serializers.ModelSerializer[DeliveryAttempt]):
    class Meta:
        model = DeliveryAttempt
        fields = ["attempt", "at", "took_s", "code", "error"]
        read_only_fields = fields


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """`told` are the turns of alerts that it tells of."""

    attempts = AttemptSerializer(many=True, read_only=True)
    told = serializers.ListField(child=serializers.DictField(), read_only=True)

    class Meta:
        model = Delivery
        fields = [
            "id", "channel", "occasion", "number", "told", "status", "attempt", "error",
            "created_at", "next_try_at", "finished_at", "attempts",
        ]  # fmt: skip
        read_only_fields = fields
