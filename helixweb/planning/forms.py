"""The forms that start a search, and of what is asked about a plan."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.urls import reverse_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.charts.chart import tokens_per_s
from helixweb.common.forms import ScopedForm
from helixweb.common.number_field import (
    GigabytesField,
    NumberField,
    PercentField,
    PlainNumberInput,
)
from helixweb.common.options import form_field, initial_of, options_from
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import models_of
from helixweb.planning import options
from helixweb.planning.models import Plan
from helixweb.planning.options import SimulationRequest
from helixweb.planning.pickers import (
    AddedRow,
    LimitRow,
    LinkRow,
    NodesField,
    PinRow,
    RowsField,
    UpgradedRow,
)
from helixweb.planning.what_if import Edits
from planner import COORDINATOR, MIXED, PlacementRules, PlanOptions, options_of

# Earlier plans that are offered to begin with.
START_PLANS = 50
MAX_WEIGHT = 1e6
OBJECTIVES = options.OPTIONS["objective"].spec.choices
# Parameters that an objective requires.
LIMITS_OF: dict[str, tuple[str, ...]] = {
    "latency": ("ttft_limit_s", "tpot_limit_s"),
    "fewest_nodes": ("demand_tokens_per_s",),
}


class SearchForm(forms.Form):
    """Method, objective and rules of a search; `plan_options` returns them for the planner.

    Limits of other objectives are not read. Rules are about nodes of `cluster`.
    """

    names: tuple[str, ...] = (
        "time_limit_s", "placer", "solver", "seed", "prune_degree", "warm_start",
        "partial_inference", "objective", "ttft_limit_s", "tpot_limit_s", "demand_tokens_per_s",
    )  # fmt: skip

    def __init__(self, *args: Any, cluster: Cluster | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields |= {name: form_field(options.OPTIONS[name]) for name in self.names}
        self.fields["relative_gap"] = form_field(
            options.OPTIONS["relative_gap"],
            PercentField,
            label=gettext_lazy("Stop within (percent of the bound)"),
        )
        rules, nodes = options_of(PlacementRules), node_names(cluster)
        for name in ("max_hops", "max_layers_per_node", "kv_reserve_tokens"):
            self.fields[name] = form_field(rules[name], required=False, initial=None)
        for name, field, settings in (
            ("excluded_nodes", NodesField, {"names": nodes}),
            ("pinned", RowsField, {"row": PinRow, "choices": {"node": nodes}}),
            ("max_layers_of", RowsField, {"row": LimitRow, "choices": {"node": nodes}}),
        ):
            spec = rules[name].spec
            self.fields[name] = field(
                label=gettext_lazy(spec.label),
                help_text=gettext_lazy(spec.help) if spec.help else "",
                **settings,
            )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        objective = cleaned.get("objective")
        for other in LIMITS_OF.keys() - {objective}:
            cleaned |= dict.fromkeys(LIMITS_OF[other])
        asked = LIMITS_OF.get(objective or "", ())
        if asked and all(name in cleaned and cleaned[name] is None for name in asked):
            self.add_error(asked[0], _("The objective needs a number here."))
        return cleaned

    def plan_options(self) -> PlanOptions:
        """Options for the planner. Raises InvalidOptions, InvalidRules; call after `is_valid`."""
        return options_from(PlanOptions, self.cleaned_data)


class StartPlanField(forms.ModelChoiceField):  # type: ignore[type-arg]  # not generic at run time
    """A choice of plans, each with the values that distinguish it."""

    def label_from_instance(self, obj: Any) -> str:
        return _("plan %(id)s: %(model)s, %(flow_tokens_per_s)s tokens/s") % {
            "id": obj.pk,
            "model": obj.model,
            "flow_tokens_per_s": tokens_per_s(obj.flow_tokens_per_s),
        }


class PlanRunForm(ScopedForm, SearchForm):
    """A search for a plan of a cluster."""

    names = (*SearchForm.names, "method", "backend", "tensor_parallel")
    cluster = forms.ModelChoiceField(Cluster.objects.all(), empty_label=None)
    model = forms.ModelChoiceField(LanguageModel.objects.all(), empty_label=None)
    start_plan = StartPlanField(
        Plan.objects.select_related("model"),
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
            "Survive the loss of one node: make large what is left of the objective when the "
            "worst one fails"
        ),
    )

    def __init__(self, *args: Any, cluster: Cluster | None, start: int = 0, **kwargs: Any) -> None:
        """The cluster's newest plans are offered to begin with, and the one with the id `start`."""
        super().__init__(*args, cluster=cluster, **kwargs)
        self.fields["method"].required = self.fields["backend"].required = False
        plans = Plan.unscoped.filter(cluster=cluster)
        newest = list(plans.order_by("-pk").values_list("pk", flat=True)[:START_PLANS])
        field: Any = self.fields["start_plan"]
        field.queryset = field.queryset.filter(cluster=cluster, pk__in=[*newest, start])

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        method = cleaned.get("method") or options.DEFAULTS.method
        if method != "pipelines" and cleaned.get("objective") != "decode":
            self.add_error(
                "method",
                _("Instances are weighed by decode throughput only: choose '%(choice)s'.")
                % {"choice": _(OBJECTIVES["decode"])},
            )
        if refused := options.why_no_degree(method, cleaned.get("tensor_parallel")):
            self.add_error("tensor_parallel", refused)
        return cleaned


class ReplanForm(SearchForm):
    """A search around a plan that runs."""

    budget_bytes = GigabytesField(
        required=False,
        label=gettext_lazy("Move at most (GB)"),
        min_value=0,
        max_value=options.MAX_BUDGET_BYTES / GigabytesField.scale,
        help_text=gettext_lazy(
            "Layers that nodes load again, 10⁹ bytes. 0: new routing weights only. "
            "Blank: as much as it takes."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["warm_start"]  # it starts from the plan that runs


class MixForm(SearchForm):
    """Weights for several models of one cluster; blank leaves a model out."""

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, cluster=cluster, **kwargs)
        del self.fields["pinned"]  # of which model would a pin be?
        del self.fields["demand_tokens_per_s"]
        objective: Any = self.fields["objective"]
        objective.choices = [choice for choice in objective.choices if choice[0] in MIXED]
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


class SecondsInput(PlainNumberInput):
    """A short input beside a button, with a label for readers of the screen only."""

    def __init__(self, label: Any) -> None:
        super().__init__(attrs={"aria-label": label, "class": "short"})


class ExtensionForm(forms.Form):
    """Additional time of a search."""

    seconds = form_field(
        options.OPTIONS["time_limit_s"],
        label=gettext_lazy("Seconds"),
        help_text="",
        widget=SecondsInput(gettext_lazy("Seconds to search on")),
    )


class ExplanationForm(forms.Form):
    """Replanning time for each kind of node of which one more is tried."""

    search_s = NumberField(
        label=gettext_lazy("Seconds for each kind"),
        min_value=0,
        max_value=options.MAX_EXPLANATION_SEARCH_S,
        initial=2,
        widget=SecondsInput(gettext_lazy("Seconds for each kind")),
    )


class SimulationForm(forms.Form):
    """The workload of a simulation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        asked = options_of(SimulationRequest)
        self.fields |= {
            "workload": form_field(asked["workload"], initial="poisson"),
            "share": form_field(
                asked["share"],
                PercentField,
                label=gettext_lazy("Requests at (percent of the peak)"),
                initial=0.75,
            ),
            "burst_size": form_field(asked["burst_size"], initial=10),
            "policy": form_field(asked["policy"]),
            "seed": form_field(asked["seed"], initial=1, help_text=""),
        }

    def request(self) -> SimulationRequest:
        """The simulation's workload; call after `is_valid`. Raises InvalidWorkload."""
        values = dict(self.cleaned_data)
        if values["workload"] == "backlog":
            values["share"] = None
        if values["workload"] != "bursts":
            values["burst_size"] = None
        return SimulationRequest(**values)


class WhatIfForm(forms.Form):
    """Changes to a copy of a plan's cluster, and how long to search on it."""

    time_limit_s = form_field(
        options.OPTIONS["time_limit_s"], label=gettext_lazy("Search for (seconds)"), help_text=""
    )

    def __init__(
        self,
        *args: Any,
        nodes: Sequence[str],
        profiles: Sequence[str],
        regions: Sequence[str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        ends = (COORDINATOR, *regions, *nodes)
        self.fields |= {
            "removed": NodesField(label=gettext_lazy("Nodes that go"), names=nodes),
            "added": RowsField(
                AddedRow,
                label=gettext_lazy("Nodes that come"),
                choices={"profile": profiles, "region": regions},
            ),
            "upgraded": RowsField(
                UpgradedRow,
                label=gettext_lazy("Nodes of another kind"),
                choices={"node": nodes, "becomes": profiles},
            ),
            "links": RowsField(
                LinkRow,
                label=gettext_lazy("Other links"),
                help_text=gettext_lazy(
                    "One direction each. Between two regions: all links that have no row of their "
                    "own."
                ),
                choices={"source": ends, "target": ends},
            ),
        }

    def edits(self) -> Edits:
        """Call after `is_valid`."""
        values = self.cleaned_data
        return Edits(**{name: values[name] for name in ("removed", "added", "upgraded", "links")})

    @property
    def rows(self) -> list[forms.BoundField]:
        """The changes that are rows."""
        return [self[name] for name in ("added", "upgraded", "links")]


def node_names(cluster: Cluster | None) -> tuple[str, ...]:
    """The nodes that rules may name, in order; none without a cluster."""
    if cluster is None:
        return ()
    return tuple(cluster.nodes.order_by("name").values_list("name", flat=True))


def initial_from(search: PlanOptions) -> dict[str, Any]:
    """The form's values that say the same as `search`."""
    rules = search.rules
    return {
        **initial_of(search),
        "kv_reserve_tokens": rules.kv_reserve_tokens or None,
        "excluded_nodes": sorted(rules.excluded_nodes),
        "pinned": [
            {"node": name, "first": held.first, "end": held.end}
            for name, held in sorted(rules.pinned.items())
        ],
        "max_layers_of": [
            {"node": name, "layers": layers} for name, layers in sorted(rules.max_layers_of.items())
        ],
    }
