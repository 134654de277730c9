"""Metrics as JSON. Rates in tokens/s, latencies in seconds, shares and ratios 0 to 1."""

from typing import Any

from rest_framework import serializers

from helixweb.common.serializers import StrictFieldsMixin
from helixweb.monitoring.agreement import Quantity
from helixweb.monitoring.bottleneck import Limit
from helixweb.monitoring.history import FIELDS


class NodeSampleSerializer(serializers.Serializer[Any]):
    kv_used_pages = serializers.IntegerField(allow_null=True)
    kv_total_pages = serializers.IntegerField(allow_null=True)
    sequences = serializers.IntegerField(allow_null=True)
    busy_ratio = serializers.FloatField(allow_null=True)
    tokens_per_s = serializers.FloatField(allow_null=True)
    flow_share = serializers.FloatField(allow_null=True)
    kv_promised_ratio = serializers.FloatField(allow_null=True)


class SampleSerializer(serializers.Serializer[Any]):
    """What the coordinator reported last. Percentiles are null while nothing finished."""

    cluster = serializers.IntegerField()
    at = serializers.DateTimeField()
    simulated = serializers.BooleanField(help_text="The simulator made it, no coordinator.")
    generation = serializers.IntegerField()
    output_tokens_per_s = serializers.FloatField()
    prompt_tokens_per_s = serializers.FloatField()
    ttft_p50_s = serializers.FloatField(allow_null=True)
    ttft_p95_s = serializers.FloatField(allow_null=True)
    itl_p50_s = serializers.FloatField(allow_null=True)
    itl_p95_s = serializers.FloatField(allow_null=True)
    tpot_p50_s = serializers.FloatField(allow_null=True)
    tpot_p95_s = serializers.FloatField(allow_null=True)
    e2e_p50_s = serializers.FloatField(allow_null=True)
    e2e_p95_s = serializers.FloatField(allow_null=True)
    running = serializers.IntegerField()
    waiting = serializers.IntegerField()
    nodes = serializers.DictField(child=NodeSampleSerializer())


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

    quantity = serializers.ChoiceField(choices=[quantity.value for quantity in Quantity])
    predicted = serializers.FloatField(allow_null=True)
    measured = serializers.FloatField(allow_null=True)
    holds = serializers.BooleanField(allow_null=True)


class NodeStepsSerializer(serializers.Serializer[Any]):
    """`longer`: a share of what its profile says; `error`: one standard error of that."""

    name = serializers.CharField()
    profile = serializers.CharField()
    predicted_ms = serializers.FloatField(allow_null=True)
    measured_ms = serializers.FloatField(allow_null=True)
    longer = serializers.FloatField(allow_null=True)
    error = serializers.FloatField(allow_null=True)
    estimated = serializers.BooleanField(help_text="Nobody has measured its profile.")
    holds = serializers.BooleanField(allow_null=True)


class LinkRateSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    counted_bytes_per_s = serializers.FloatField()
    measured_bytes_per_s = serializers.FloatField()
    seen_full = serializers.BooleanField()
    holds = serializers.BooleanField(allow_null=True)


class MeanTokensSerializer(serializers.Serializer[Any]):
    phase = serializers.CharField()
    planned = serializers.FloatField()
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
