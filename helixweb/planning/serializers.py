"""Plan runs, plans, mixes and simulations as JSON."""

from typing import Any, TypeVar

from rest_framework import serializers

from helixweb.common.models import Job
from helixweb.common.options import OptionsSerializer, rest_field
from helixweb.common.serializers import RowKey, StrictFieldsMixin
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning import options
from helixweb.planning.models import (
    Explanation,
    Incumbent,
    MixShare,
    ModelMix,
    Plan,
    PlanRun,
    Replan,
    Simulation,
)
from helixweb.planning.services.simulating import SimulationRequest
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.plan_options import PlanOptions

Row = TypeVar("Row", bound=Job)


class PinSerializer(OptionsSerializer):
    """Layers [first, end) of a pinned node."""

    of = LayerRange


class PlacementRulesSerializer(OptionsSerializer):
    """What every placement must honour; nothing by default."""

    of = PlacementRules
    pinned = serializers.DictField(
        child=PinSerializer(), default=dict, help_text="Nodes that hold exactly these layers."
    )


class PlanOptionsSerializer(OptionsSerializer):
    """How to search; what is left out takes its default."""

    of = PlanOptions
    rules = PlacementRulesSerializer(default=dict)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        refused = options.why_no_degree(attrs["method"], attrs["tensor_parallel"])
        if refused:
            raise serializers.ValidationError({"tensor_parallel": [refused]})
        return attrs


class FlowOptionsSerializer(PlanOptionsSerializer):
    """How to search where only the flow can be made large."""

    objective = serializers.ChoiceField(choices=["flow"], default="flow")
    method = serializers.ChoiceField(choices=["pipelines"], default="pipelines")


class PlanRunRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """What to plan, and how to search."""

    cluster = RowKey(queryset=Cluster.objects.all())
    model = serializers.PrimaryKeyRelatedField(queryset=LanguageModel.objects.all())
    options = PlanOptionsSerializer(default=dict)
    start_plan = RowKey(queryset=Plan.objects.defer("problem"), allow_null=True, default=None)
    survive_one_loss = serializers.BooleanField(
        default=False,
        help_text="Make the flow large that is left when the worst node fails; only with the "
        "objective 'flow', which is then the default.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["survive_one_loss"] and "objective" not in self.initial_data.get("options", {}):
            attrs["options"]["objective"] = "flow"
        return attrs


class ExtensionSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """How much longer to search."""

    seconds = rest_field(options.OPTIONS["time_limit_s"], default=serializers.empty)


class ReplanRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """How to search around a plan that runs."""

    budget_bytes = serializers.FloatField(
        min_value=0,
        max_value=options.MAX_BUDGET_BYTES,
        allow_null=True,
        default=None,
        help_text="Layers that nodes load anew, at most; null: as much as it takes.",
    )
    options = FlowOptionsSerializer(default=dict)


class ReplanPointSerializer(serializers.Serializer[Any]):
    """An answer that no other beats in both flow and bytes moved; see Incumbent's components."""

    placement = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField()), read_only=True
    )
    components = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), read_only=True, default=list
    )
    flow_tokens_per_s = serializers.FloatField(read_only=True)
    moved_bytes = serializers.FloatField(read_only=True)
    method = serializers.CharField(read_only=True)


class ReplanSerializer(serializers.ModelSerializer[Replan]):
    """`points` rise in bytes and in flow; `budget_bytes` null: as much as it takes."""

    points = ReplanPointSerializer(many=True, read_only=True)

    class Meta:
        model = Replan
        fields = ["running_plan", "budget_bytes", "points"]
        read_only_fields = fields


class AdoptionSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which of a replanning's answers to make a plan of, from 0."""

    point = serializers.IntegerField(min_value=0)


class UnmovedSerializer(serializers.Serializer[Any]):
    """A plan's placement on the cluster as it is now, no layer moved."""

    flow_tokens_per_s = serializers.FloatField(read_only=True)
    gone = serializers.ListField(child=serializers.CharField(), read_only=True)
    added = serializers.ListField(child=serializers.CharField(), read_only=True)
    silent = serializers.ListField(child=serializers.CharField(), read_only=True)
    changes = serializers.ListField(child=serializers.CharField(), read_only=True)


class ExplanationRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Seconds of replanning for each kind of node; 0: the others keep their layers."""

    search_s = serializers.FloatField(
        min_value=0, max_value=options.MAX_EXPLANATION_SEARCH_S, default=0.0
    )


class MarginalValueSerializer(serializers.Serializer[Any]):
    """One more unit of a resource; `replanned_tokens_per_s` is null where nothing was searched."""

    resource = serializers.CharField(read_only=True)
    before_tokens_per_s = serializers.FloatField(read_only=True)
    kept_tokens_per_s = serializers.FloatField(read_only=True)
    replanned_tokens_per_s = serializers.FloatField(read_only=True, allow_null=True)
    gain = serializers.FloatField(read_only=True)


class ExplanationSerializer(serializers.ModelSerializer[Explanation]):
    """`survival_tokens_per_s` is left when `worst_node` is lost."""

    limits = serializers.ListField(child=serializers.CharField(), read_only=True)
    values = MarginalValueSerializer(many=True, read_only=True)

    class Meta:
        model = Explanation
        fields = [
            "plan", "status", "error", "search_s", "limits", "survival_tokens_per_s", "worst_node",
            "values", "created_at", "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class JobSerializer(serializers.ModelSerializer[Row]):
    """A job that a person started; null: the site did."""

    created_by = serializers.CharField(
        source="created_by.username", default=None, read_only=True, allow_null=True
    )


class PlanRunSerializer(JobSerializer[PlanRun]):
    """`plan` is the id of the plan it ended in, null while there is none.

    What it shows as `options` can be sent as those of another run.
    """

    options = PlanOptionsSerializer(read_only=True)
    gap = serializers.FloatField(read_only=True, allow_null=True)
    plan = serializers.IntegerField(source="plan.pk", default=None, read_only=True, allow_null=True)

    class Meta:
        model = PlanRun
        fields = [
            "id", "cluster", "model", "status", "attempt", "cancel_requested", "accept_requested",
            "error", "options", "survive_one_loss", "what_if", "start_plan", "continues", "mix",
            "solver", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap", "objective_value",
            "plan", "created_by", "created_at", "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class IncumbentSerializer(serializers.ModelSerializer[Incumbent]):
    gap = serializers.FloatField(read_only=True, allow_null=True)
    placement = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField()), read_only=True
    )
    components = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), read_only=True
    )

    class Meta:
        model = Incumbent
        fields = [
            "id", "attempt", "elapsed_s", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap",
            "objective_value", "placer", "placement", "components",
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


class WeightSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """A model, and its share: flows become large in the proportions of the weights."""

    model = serializers.PrimaryKeyRelatedField(queryset=LanguageModel.objects.all())
    weight = serializers.FloatField(min_value=0, default=1.0)


class ModelMixRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which models to plan on which cluster, and how to search."""

    cluster = RowKey(queryset=Cluster.objects.all())
    models = WeightSerializer(many=True)
    options = FlowOptionsSerializer(default=dict)

    def validate_models(self, models: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [row["model"].name for row in models]
        for name in names:
            if names.count(name) > 1:
                raise serializers.ValidationError(f"Model {name} is named twice; keep one.")
        return models


class MixShareSerializer(serializers.ModelSerializer[MixShare]):
    class Meta:
        model = MixShare
        fields = ["model", "weight"]
        read_only_fields = fields


class ModelMixSerializer(JobSerializer[ModelMix]):
    """`runs` are the finished plan runs, one for each model, once the mix has ended."""

    options = PlanOptionsSerializer(read_only=True)
    models = MixShareSerializer(source="shares", many=True, read_only=True)
    runs: serializers.PrimaryKeyRelatedField[PlanRun] = serializers.PrimaryKeyRelatedField(
        many=True, read_only=True
    )

    class Meta:
        model = ModelMix
        fields = [
            "id", "cluster", "status", "attempt", "cancel_requested", "error", "options", "models",
            "level_tokens_per_s", "level_bound_tokens_per_s", "runs", "created_by", "created_at",
            "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class SimulationRequestSerializer(OptionsSerializer):
    """Which plan to serve what. `share` is of the plan's peak, when requests always wait."""

    of = SimulationRequest
    plan = RowKey(queryset=Plan.objects.all())


class SimulationSerializer(JobSerializer[Simulation]):
    """`forecast` is null until it has ended; its times are in seconds, its shares 0 to 1."""

    forecast = serializers.JSONField(read_only=True)

    class Meta:
        model = Simulation
        fields = [
            "id", "plan", "status", "progress", "error", "workload", "share", "burst_size",
            "policy", "seed", "requests_per_s", "forecast", "created_by", "created_at",
            "started_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields
