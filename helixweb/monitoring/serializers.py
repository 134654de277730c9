"""Metrics as JSON. Rates in tokens/s, latencies in seconds, shares and ratios 0 to 1."""

from typing import Any

from rest_framework import serializers

from helixweb.common.serializers import StrictFieldsMixin
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
