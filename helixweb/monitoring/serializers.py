"""Metrics as JSON. Rates in tokens/s, latencies in seconds, shares and ratios 0 to 1."""

from typing import Any

from rest_framework import serializers

from helixweb.common.serializers import StrictFieldsMixin
from helixweb.monitoring.agreement import Quantity
from helixweb.monitoring.bottleneck import Limit
from helixweb.monitoring.history import FIELDS
from helixweb.monitoring.models import NUMBERS, MetricSample


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
