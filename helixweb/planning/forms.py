"""The forms that start a search: for a plan of a cluster, and around a plan that runs."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from django import forms
from django.urls import reverse_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.charts.chart import tokens_per_s
from helixweb.common.number_field import NumberField, PlainNumberInput
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import models_of
from helixweb.planning import options
from helixweb.planning.method_form import MethodForm
from helixweb.planning.models import Plan
from helixweb.planning.objectives import CHOICES
from helixweb.planning.pickers import NodesField
from helixweb.planning.rule_rows import limits_field, pins_field, rows_of
from helixweb.planning.services.fit import BASELINE_TITLES
from planner.domain.rules import PlacementRules
from planner.plan_options import PlanOptions

PERCENT = 100.0
BYTES_PER_GB = 1e9
# Earlier plans that are offered to begin with.
START_PLANS = 50
MAX_WEIGHT = 1e6
PLACER_LABELS = {
    "auto": gettext_lazy("Automatic: all of them in turn"),
    "milp": gettext_lazy("MILP of the Helix paper"),
    "stage-patterns": gettext_lazy("Stage patterns, an integer program"),
    "region-chain": gettext_lazy("Chains of regions"),
    "stage-annealing": gettext_lazy("Annealing of stages"),
    "interval-annealing": gettext_lazy("Annealing of staggered ranges"),
}
SOLVER_LABELS = {
    "auto": gettext_lazy("Automatic: Gurobi where its licence allows, else HiGHS"),
    "gurobi": gettext_lazy("Gurobi only"),
    "highs": gettext_lazy("HiGHS only"),
}
# What an objective must be told.
LIMITS_OF = {
    "latency": ("ttft_limit_s", "tpot_limit_s"),
    "fewest_nodes": ("demand_tokens_per_s",),
}
WARM_START_LABELS = {
    "best": gettext_lazy("The best baseline or plan known"),
    "none": gettext_lazy("Nothing"),
    **BASELINE_TITLES,
}


class SearchForm(forms.Form):
    """How to search and what to honour, as people write it; `plan_options` gives the planner's.

    For the flow; PlanRunForm knows the other objectives. `nodes` can be chosen for rules.
    """

    time_limit_s = NumberField(
        label=gettext_lazy("Time limit (seconds)"),
        min_value=options.MIN_TIME_LIMIT_S,
        max_value=options.MAX_TIME_LIMIT_S,
        initial=options.DEFAULTS.time_limit_s,
        help_text=gettext_lazy("You may accept the best plan so far at any moment."),
    )
    placer = forms.ChoiceField(
        choices=[(name, PLACER_LABELS.get(name, name)) for name in options.PLACERS],
        initial=options.DEFAULTS.placer,
    )
    solver = forms.ChoiceField(
        choices=[(name, SOLVER_LABELS[name]) for name in options.SOLVERS],
        initial=options.DEFAULTS.solver,
    )
    gap_percent = NumberField(
        label=gettext_lazy("Stop within (percent of the bound)"),
        min_value=0,
        max_value=options.MAX_RELATIVE_GAP * PERCENT,
        initial=options.DEFAULTS.relative_gap * PERCENT,
    )
    seed = forms.IntegerField(
        min_value=0,
        max_value=options.MAX_SEED,
        initial=options.DEFAULTS.seed,
        help_text=gettext_lazy("Another seed searches along other ways."),
    )
    prune_degree = NumberField(
        required=False,
        label=gettext_lazy("Prune links to an average degree of"),
        min_value=options.MIN_PRUNE_DEGREE,
        max_value=options.MAX_PRUNE_DEGREE,
        help_text=gettext_lazy(
            "Blank: keep all. Only for the MILP; a pruned search proves no bound."
        ),
    )
    warm_start = forms.ChoiceField(
        label=gettext_lazy("The solver improves"),
        choices=[(name, WARM_START_LABELS[name]) for name in options.WARM_STARTS],
        initial=options.DEFAULTS.warm_start,
    )
    partial_inference = forms.BooleanField(
        required=False,
        initial=options.DEFAULTS.partial_inference,
        label=gettext_lazy("Partial inference: a node may run only some of the layers it holds"),
    )
    max_hops = forms.IntegerField(
        required=False,
        label=gettext_lazy("Most stages a request visits"),
        min_value=1,
        max_value=options.MAX_LAYERS,
        help_text=gettext_lazy("Blank: any number. Fewer stages answer sooner."),
    )
    max_layers_per_node = forms.IntegerField(
        required=False,
        label=gettext_lazy("Most layers on a node"),
        min_value=1,
        max_value=options.MAX_LAYERS,
        help_text=gettext_lazy("Blank: what its memory holds."),
    )
    kv_reserve_tokens = NumberField(
        required=False,
        label=gettext_lazy("KV reserve (tokens)"),
        min_value=0,
        max_value=options.MAX_KV_RESERVE_TOKENS,
        help_text=gettext_lazy(
            "Every node keeps KV room for so many tokens on each layer it holds."
        ),
    )

    def __init__(self, *args: Any, nodes: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = tuple(nodes)
        label = gettext_lazy("Nodes that hold nothing")
        self.fields["excluded_nodes"] = NodesField(label=label, names=names)
        self.fields["pinned"] = pins_field(names)
        self.fields["max_layers_of"] = limits_field(names)

    def plan_options(self) -> PlanOptions:
        """Raises planner's InvalidOptions and InvalidRules; call after `is_valid`."""
        values: dict[str, Any] = self.cleaned_data
        return PlanOptions(
            objective="flow",
            time_limit_s=values["time_limit_s"],
            partial_inference=values["partial_inference"],
            placer=values["placer"],
            solver=values["solver"],
            warm_start=values.get("warm_start", options.DEFAULTS.warm_start),
            prune_degree=values["prune_degree"],
            relative_gap=values["gap_percent"] / PERCENT,
            seed=values["seed"],
            rules=PlacementRules(
                max_hops=values["max_hops"],
                excluded_nodes=values["excluded_nodes"],
                pinned=values.get("pinned", {}),
                max_layers_per_node=values["max_layers_per_node"],
                max_layers_of=values["max_layers_of"],
                kv_reserve_tokens=values["kv_reserve_tokens"] or 0.0,
            ),
        )


class StartPlanField(forms.ModelChoiceField):  # type: ignore[type-arg]  # not generic at run time
    """Plans named by what tells them apart."""

    def label_from_instance(self, obj: Any) -> str:
        return _("plan %(id)s: %(model)s, %(flow_tokens_per_s)s tokens/s") % {
            "id": obj.pk,
            "model": obj.model,
            "flow_tokens_per_s": tokens_per_s(obj.flow_tokens_per_s),
        }


class PlanRunForm(MethodForm, SearchForm):
    """A search for a plan of a cluster, for any objective; limits of others are not read."""

    objective = forms.ChoiceField(
        label=gettext_lazy("Objective"),
        choices=[(name, gettext_lazy(text)) for name, text in CHOICES.items()],
        initial=options.DEFAULTS.objective,
    )
    ttft_limit_s = NumberField(
        required=False,
        label=gettext_lazy("TTFT of the median request, at most (s)"),
        min_value=0,
        help_text=gettext_lazy("Give this limit, the other, or both."),
    )
    tpot_limit_s = NumberField(
        required=False,
        label=gettext_lazy("TPOT of the median request, at most (s)"),
        min_value=0,
        help_text=gettext_lazy("Seconds for each token after the first."),
    )
    demand_tokens_per_s = NumberField(
        required=False,
        label=gettext_lazy("Demand (decode tokens/s)"),
        min_value=0,
        help_text=gettext_lazy("Nodes that are not needed for it are left idle."),
    )
    cluster = forms.ModelChoiceField(Cluster.objects.all(), empty_label=None)
    model = forms.ModelChoiceField(LanguageModel.objects.all(), empty_label=None)
    start_plan = StartPlanField(
        Plan.objects.select_related("model").defer("problem", "document"),
        required=False,
        label=gettext_lazy("Begin with an earlier plan"),
        empty_label=gettext_lazy("none"),
        help_text=gettext_lazy("A plan of the same cluster; what of it still fits is improved."),
        widget=forms.Select(
            attrs={
                "hx-get": reverse_lazy("plan-run-starts"),
                "hx-include": "#id_cluster",
                "hx-trigger": "change from:#id_cluster",
            }
        ),
    )
    survive_one_loss = forms.BooleanField(
        required=False,
        label=gettext_lazy(
            "Survive the loss of one node: make the flow large that is left when the "
            "worst one fails"
        ),
        help_text=gettext_lazy("For the objective of most flow only."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        objective = cleaned.get("objective", "flow")
        if cleaned.get("survive_one_loss") and objective != "flow":
            self.add_error(
                "objective",
                _(
                    "What survives a loss is known of the flow only: choose '%(choice)s', "
                    "or do not ask to survive the loss of one node."
                )
                % {"choice": _(CHOICES["flow"])},
            )
        asked = LIMITS_OF.get(objective, ())
        if asked and all(name in cleaned and cleaned[name] is None for name in asked):
            self.add_error(asked[0], _("The objective needs a number here."))
        return cleaned

    def plan_options(self) -> PlanOptions:
        values = self.cleaned_data
        objective = values["objective"]
        return replace(
            super().plan_options(),
            objective=objective,
            **self.method_options(),
            **{key: values[key] for key in LIMITS_OF.get(objective, ())},
        )

    def offer_plans_of(self, cluster: Cluster | None, *, chosen: int = 0) -> None:
        """Let only that cluster's newest plans be chosen to begin with, and the one `chosen`."""
        field = self.fields["start_plan"]
        plans = Plan.objects.filter(cluster=cluster)
        newest = list(plans.order_by("-pk").values_list("pk", flat=True)[:START_PLANS])
        field.queryset = field.queryset.filter(  # type: ignore[attr-defined]
            cluster=cluster, pk__in=[*newest, chosen]
        )


class ReplanForm(SearchForm):
    """A search around a plan that runs."""

    budget_gb = NumberField(
        required=False,
        label=gettext_lazy("Move at most (GB)"),
        min_value=0,
        max_value=options.MAX_BUDGET_BYTES / BYTES_PER_GB,
        help_text=gettext_lazy(
            "Layers that nodes load anew, 10⁹ bytes. 0: new routing weights only. "
            "Blank: as much as it takes."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["warm_start"]  # it starts from the plan that runs

    @property
    def budget_bytes(self) -> float | None:
        """Call after `is_valid`."""
        budget_gb: float | None = self.cleaned_data["budget_gb"]
        return None if budget_gb is None else budget_gb * BYTES_PER_GB


class MixForm(SearchForm):
    """Weights for several models of one cluster; blank leaves a model out."""

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, nodes=node_names(cluster), **kwargs)
        del self.fields["pinned"]  # of which model would a pin be?
        self._models = {f"weight-{model.pk}": model for model in models_of(cluster)}
        for name, model in self._models.items():
            self.fields[name] = NumberField(
                required=False, label=model.name, min_value=0, max_value=MAX_WEIGHT, initial=1.0
            )

    def weight_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self._models]

    def weights(self) -> dict[LanguageModel, float]:
        """Call after `is_valid`."""
        return {
            model: self.cleaned_data[name]
            for name, model in self._models.items()
            if self.cleaned_data[name]
        }


class ExtensionForm(forms.Form):
    """How much longer to search."""

    seconds = NumberField(
        min_value=options.MIN_TIME_LIMIT_S,
        max_value=options.MAX_TIME_LIMIT_S,
        initial=options.DEFAULTS.time_limit_s,
        widget=PlainNumberInput(
            attrs={"aria-label": gettext_lazy("Seconds to search on"), "class": "short"}
        ),
    )


def node_names(cluster: Cluster | None) -> tuple[str, ...]:
    """The nodes that rules may name, in order; none without a cluster."""
    if cluster is None:
        return ()
    return tuple(cluster.nodes.order_by("name").values_list("name", flat=True))


def initial_from(search: PlanOptions) -> dict[str, Any]:
    """The form's values that say the same as `search`."""
    rules = search.rules
    return {
        "time_limit_s": search.time_limit_s,
        "objective": search.objective,
        "method": search.method,
        "backend": search.backend,
        "tensor_parallel": search.tensor_parallel,
        "ttft_limit_s": search.ttft_limit_s,
        "tpot_limit_s": search.tpot_limit_s,
        "demand_tokens_per_s": search.demand_tokens_per_s,
        "placer": search.placer,
        "solver": search.solver,
        "gap_percent": search.relative_gap * PERCENT,
        "seed": search.seed,
        "prune_degree": search.prune_degree,
        "warm_start": search.warm_start,
        "partial_inference": search.partial_inference,
        "max_hops": rules.max_hops,
        "max_layers_per_node": rules.max_layers_per_node,
        "kv_reserve_tokens": rules.kv_reserve_tokens or None,
        "excluded_nodes": sorted(rules.excluded_nodes),
        **rows_of(rules),
    }
