"""Plan runs and plans as JSON."""

from typing import Any

from rest_framework import serializers

from helixweb.common.serializers import StrictFieldsMixin
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning import options
from helixweb.planning.models import Incumbent, Plan, PlanRun


class PlanOptionsSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """How to search; what is left out takes its default."""

    time_limit_s = serializers.FloatField(
        min_value=options.MIN_TIME_LIMIT_S,
        max_value=options.MAX_TIME_LIMIT_S,
        default=options.DEFAULTS.time_limit_s,
    )
    partial_inference = serializers.BooleanField(default=options.DEFAULTS.partial_inference)
    solver = serializers.ChoiceField(choices=options.SOLVERS, default=options.DEFAULTS.solver)
    prune_degree = serializers.FloatField(
        min_value=options.MIN_PRUNE_DEGREE,
        max_value=options.MAX_PRUNE_DEGREE,
        allow_null=True,
        default=options.DEFAULTS.prune_degree,
    )
    warm_start = serializers.ChoiceField(
        choices=options.WARM_STARTS, default=options.DEFAULTS.warm_start
    )
    relative_gap = serializers.FloatField(
        min_value=0, max_value=options.MAX_RELATIVE_GAP, default=options.DEFAULTS.relative_gap
    )
    seed = serializers.IntegerField(min_value=0, max_value=2**31 - 1, default=options.DEFAULTS.seed)


class PlanRunRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """What to plan, and how to search."""

    cluster = serializers.PrimaryKeyRelatedField(queryset=Cluster.objects.all())
    model = serializers.PrimaryKeyRelatedField(queryset=LanguageModel.objects.all())
    options = PlanOptionsSerializer(default=dict)


class PlanRunSerializer(serializers.ModelSerializer[PlanRun]):
    """`plan` is the id of the plan it ended in, null while there is none."""

    options = serializers.JSONField(read_only=True)
    gap = serializers.FloatField(read_only=True, allow_null=True)
    plan = serializers.IntegerField(source="plan.pk", default=None, read_only=True, allow_null=True)
    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True
    )

    class Meta:
        model = PlanRun
        fields = [
            "id", "cluster", "model", "status", "attempt", "cancel_requested", "error", "options",
            "solver", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap", "plan", "created_by",
            "created_at", "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class IncumbentSerializer(serializers.ModelSerializer[Incumbent]):
    gap = serializers.FloatField(read_only=True, allow_null=True)
    placement = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField()), read_only=True
    )

    class Meta:
        model = Incumbent
        fields = [
            "id", "attempt", "elapsed_s", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap",
            "placer", "placement",
        ]  # fmt: skip
        read_only_fields = fields


class PlanSummarySerializer(serializers.ModelSerializer[Plan]):
    gap = serializers.FloatField(read_only=True)

    class Meta:
        model = Plan
        fields = [
            "id", "cluster", "model", "run", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap",
            "hops", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class PlanSerializer(PlanSummarySerializer):
    """`document` is the whole plan as `helixweb.plan/1`."""

    document = serializers.JSONField(read_only=True)

    class Meta(PlanSummarySerializer.Meta):
        fields = [*PlanSummarySerializer.Meta.fields, "document"]
        read_only_fields = fields
