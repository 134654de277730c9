"""Plan runs, plans, mixes, simulations, what-ifs and comparisons as JSON."""

from typing import Any

from rest_framework import serializers

from helixweb.common.options import OptionsSerializer, rest_field
from helixweb.common.serializers import CreatedBy, RowKey, ShownSerializer, StrictFieldsMixin
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
from helixweb.planning.options import SimulationRequest
from helixweb.planning.what_if import AddedNodes
from planner import MIXED, LayerRange, Link, PlacementRules, PlanOptions

STAGES_ONLY = ("pipelines",)
MAX_BANDWIDTH_BYTES_PER_S, MAX_LATENCY_S = 1e15, 3600.0


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


class PipelineOptionsSerializer(PlanOptionsSerializer):
    """How to search where every node runs stages."""

    method = serializers.ChoiceField(choices=STAGES_ONLY, default="pipelines")


class MixOptionsSerializer(PipelineOptionsSerializer):
    """How to search where several models share a cluster by tokens/s."""

    objective = serializers.ChoiceField(choices=MIXED, default="decode")


class PlanRunRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """What to plan, and how to search."""

    cluster = RowKey(queryset=Cluster.objects.all())
    model = RowKey(queryset=LanguageModel.objects.all())
    options = PlanOptionsSerializer(default=dict)
    start_plan = RowKey(queryset=Plan.objects.all(), allow_null=True, default=None)
    survive_one_loss = serializers.BooleanField(
        default=False,
        help_text="Make large what is left of the objective when the worst node fails; only with "
        "the method 'pipelines'.",
    )


class ExtensionSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """How much longer to search."""

    seconds = rest_field(options.OPTIONS["time_limit_s"], default=serializers.empty)


class ReplanRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """How to search around a plan that runs; by its objective unless another is given."""

    budget_bytes = serializers.FloatField(
        min_value=0,
        max_value=options.MAX_BUDGET_BYTES,
        allow_null=True,
        default=None,
        help_text="Layers that nodes load again, at most; null: as much as it takes.",
    )
    options = PipelineOptionsSerializer(default=dict)


class ReplanPointSerializer(serializers.Serializer[Any]):
    """An answer that no other beats in both its objective and bytes moved.

    `objective_value` is by estimate, null where the flow is the objective. See Incumbent's
    components.
    """

    placement = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField()), read_only=True
    )
    components = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), read_only=True, default=list
    )
    flow_tokens_per_s = serializers.FloatField(read_only=True)
    objective_value = serializers.FloatField(read_only=True, allow_null=True, default=None)
    moved_bytes = serializers.FloatField(read_only=True)
    method = serializers.CharField(read_only=True)


class ReplanSerializer(ShownSerializer[Replan]):
    """`points` rise in bytes and in value; `budget_bytes` null: as much as it takes."""

    points = ReplanPointSerializer(many=True, read_only=True)

    class Meta:
        model = Replan
        fields = ["running_plan", "budget_bytes", "points"]


class AdoptionSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which of a replanning's answers to make a plan of, from 0."""

    point = serializers.IntegerField(min_value=0)


class UnmovedSerializer(serializers.Serializer[Any]):
    """A plan's placement on the cluster as it is now, no layer moved.

    `objective_value` is by estimate, null where the flow is the objective.
    """

    flow_tokens_per_s = serializers.FloatField(read_only=True)
    objective = serializers.CharField(read_only=True)
    objective_value = serializers.FloatField(read_only=True, allow_null=True)
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
    """One more unit of a resource, in values of the explanation's `objective`.

    `replanned_tokens_per_s` is null where nothing was searched.
    """

    resource = serializers.CharField(read_only=True)
    before_tokens_per_s = serializers.FloatField(read_only=True)
    kept_tokens_per_s = serializers.FloatField(read_only=True)
    replanned_tokens_per_s = serializers.FloatField(read_only=True, allow_null=True)
    gain = serializers.FloatField(read_only=True)


class ExplanationSerializer(ShownSerializer[Explanation]):
    """`survival_tokens_per_s` is left when `worst_node` is lost.

    It and `values` are of `objective`: exact for "flow", else by estimate.
    """

    limits = serializers.ListField(
        child=serializers.CharField(), source="sentences", read_only=True
    )
    values = MarginalValueSerializer(many=True, read_only=True)

    class Meta:
        model = Explanation
        fields = [
            "plan", "status", "error", "search_s", "objective", "limits", "survival_tokens_per_s",
            "worst_node", "values", "created_at", "started_at", "finished_at",
        ]  # fmt: skip


class PlanRunSerializer(ShownSerializer[PlanRun]):
    """`plan` is the id of the plan it ended in, null while there is none.

    What it shows as `options` can be sent as those of another run.
    """

    created_by = CreatedBy()
    options = PlanOptionsSerializer(read_only=True)
    plan = serializers.IntegerField(source="plan.pk", default=None, read_only=True, allow_null=True)

    class Meta:
        model = PlanRun
        fields = [
            "id", "cluster", "model", "status", "attempt", "cancel_requested", "accept_requested",
            "error", "options", "survive_one_loss", "what_if", "start_plan", "continues", "mix",
            "solver", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap", "objective_value",
            "objective_bound", "objective_gap",
            "plan", "created_by", "created_at", "started_at", "finished_at",
        ]  # fmt: skip


class IncumbentSerializer(ShownSerializer[Incumbent]):
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
            "objective_value", "objective_bound", "objective_gap", "placer", "placement",
            "components",
        ]  # fmt: skip


class PlanSummarySerializer(ShownSerializer[Plan]):
    gap = serializers.FloatField(read_only=True)

    class Meta:
        model = Plan
        fields = [
            "id", "cluster", "model", "run", "flow_tokens_per_s", "upper_bound_tokens_per_s", "gap",
            "hops", "created_at",
        ]  # fmt: skip


class PlanSerializer(PlanSummarySerializer):
    """`document` is the whole plan as `helixweb.plan/1`."""

    class Meta(PlanSummarySerializer.Meta):
        fields = [*PlanSummarySerializer.Meta.fields, "document"]


class WeightSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """A model, and its share of what is served."""

    model = RowKey(queryset=LanguageModel.objects.all())
    weight = serializers.FloatField(min_value=0, default=1.0)


class ModelMixRequestSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which models to plan on which cluster, and how to search."""

    cluster = RowKey(queryset=Cluster.objects.all())
    models = WeightSerializer(many=True)
    options = MixOptionsSerializer(default=dict)

    def validate_models(self, models: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [row["model"].name for row in models]
        for name in names:
            if names.count(name) > 1:
                raise serializers.ValidationError(f"Model {name} is named twice; keep one.")
        return models


class MixShareSerializer(ShownSerializer[MixShare]):
    class Meta:
        model = MixShare
        fields = ["model", "weight"]


class ModelMixSerializer(ShownSerializer[ModelMix]):
    """`runs` are the finished plan runs, one for each model, once the mix has ended.

    The level is the least value / weight: of exact flows, or estimates; then no bound is known.
    """

    created_by = CreatedBy()
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


class SimulationRequestSerializer(OptionsSerializer):
    """Which plan to serve what. `share` is of the plan's peak, when requests always wait."""

    of = SimulationRequest
    plan = RowKey(queryset=Plan.objects.all())


class SimulationSerializer(ShownSerializer[Simulation]):
    """`forecast` is null until it has ended; its times are in seconds, its shares 0 to 1."""

    created_by = CreatedBy()
    forecast = serializers.JSONField(read_only=True)

    class Meta:
        model = Simulation
        fields = [
            "id", "plan", "status", "progress", "error", "workload", "share", "burst_size",
            "policy", "seed", "requests_per_s", "forecast", "created_by", "created_at",
            "started_at", "finished_at",
        ]  # fmt: skip


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
    ttft_s = serializers.FloatField(read_only=True, allow_null=True)
    tpot_s = serializers.FloatField(read_only=True, allow_null=True)
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
