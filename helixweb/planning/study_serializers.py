"""What-ifs and comparisons of plans as JSON."""

from typing import Any

from rest_framework import serializers

from helixweb.common.options import OptionsSerializer
from helixweb.common.serializers import StrictFieldsMixin
from helixweb.planning.serializers import PlanOptionsSerializer
from helixweb.planning.what_if import AddedNodes
from planner import Link

MAX_BANDWIDTH_BYTES_PER_S, MAX_LATENCY_S = 1e15, 3600.0


class AddedNodesSerializer(OptionsSerializer):
    """So many nodes of a profile in a region."""

    of = AddedNodes


class ChangedLinkSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """A directed link between nodes, or between regions."""

    source = serializers.CharField()  # type: ignore[assignment]  # rest_framework moves it away
    target = serializers.CharField()
    bandwidth_bytes_per_s = serializers.FloatField(
        min_value=1e-3, max_value=MAX_BANDWIDTH_BYTES_PER_S
    )
    latency_s = serializers.FloatField(min_value=0, max_value=MAX_LATENCY_S)


class WhatIfSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Changes to a copy of the plan's cluster; `options` given: search on it too."""

    removed = serializers.ListField(child=serializers.CharField(), default=list)
    added = AddedNodesSerializer(many=True, default=list)
    upgraded = serializers.DictField(child=serializers.CharField(), default=dict)
    links = ChangedLinkSerializer(many=True, default=list)
    options = PlanOptionsSerializer(allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return attrs | {
            "removed": frozenset(attrs["removed"]),
            "added": tuple(AddedNodes(**some) for some in attrs["added"]),
            "links": tuple(Link(**link) for link in attrs["links"]),
        }


class WorthSerializer(serializers.Serializer[Any]):
    """By the estimate, while requests always wait; the flow and its bound are exact."""

    nodes_used = serializers.IntegerField(read_only=True)
    flow_tokens_per_s = serializers.FloatField(read_only=True)
    upper_bound_tokens_per_s = serializers.FloatField(read_only=True)
    decode_tokens_per_s = serializers.FloatField(read_only=True)
    ttft_s = serializers.FloatField(read_only=True)
    tpot_s = serializers.FloatField(read_only=True)
    requests_in_flight = serializers.FloatField(read_only=True)
    price_per_hour = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Of its nodes; null where one has no price."
    )
    million_tokens_per_price = serializers.FloatField(
        read_only=True, allow_null=True, help_text="Decode tokens for a unit of price, in millions."
    )


class WhatIfAnswerSerializer(serializers.Serializer[Any]):
    """`run` is the search on the copy, null where none was asked for."""

    before = WorthSerializer(read_only=True)
    after = WorthSerializer(read_only=True)
    run = serializers.IntegerField(read_only=True, allow_null=True)


class SimulatedSerializer(serializers.Serializer[Any]):
    """Figures of a plan's newest offline simulation under the runtime's policy."""

    decode_tokens_per_s = serializers.FloatField(read_only=True)
    prompt_tokens_per_s = serializers.FloatField(read_only=True)
    ttft_p50_s = serializers.FloatField(source="ttft.p50_s", read_only=True)
    ttft_p95_s = serializers.FloatField(source="ttft.p95_s", read_only=True)
    tpot_p50_s = serializers.FloatField(source="tpot.p50_s", read_only=True)
    tpot_p95_s = serializers.FloatField(source="tpot.p95_s", read_only=True)


class ComparedPlanSerializer(serializers.Serializer[Any]):
    """`moved_bytes` is what nodes have to load on the way from the first plan."""

    plan = serializers.IntegerField(source="row.pk", read_only=True)
    objective = serializers.CharField(source="plan.forecast.objective", default="flow")
    objective_value = serializers.FloatField(
        source="plan.forecast.value", default=None, allow_null=True
    )
    simulated = SimulatedSerializer(read_only=True, allow_null=True)
    flow_tokens_per_s = serializers.FloatField(source="row.flow_tokens_per_s", read_only=True)
    upper_bound_tokens_per_s = serializers.FloatField(
        source="row.upper_bound_tokens_per_s", read_only=True
    )
    gap = serializers.FloatField(source="row.gap", read_only=True)
    hops = serializers.FloatField(source="row.hops", read_only=True)
    moved_bytes = serializers.FloatField(read_only=True, allow_null=True)


class NodeLayersSerializer(serializers.Serializer[Any]):
    """A node's layers in each plan, blank where it holds none."""

    node = serializers.CharField(read_only=True)
    layers = serializers.ListField(child=serializers.CharField(), read_only=True)
    differs = serializers.BooleanField(read_only=True)


class ComparisonSerializer(serializers.Serializer[Any]):
    """Plans in the order they were asked for."""

    plans = ComparedPlanSerializer(many=True, read_only=True)
    nodes = NodeLayersSerializer(many=True, read_only=True)
