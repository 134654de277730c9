"""The form that starts a plan run."""

from typing import Any

from django import forms

from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning import options
from planner.compute_plan import PlanOptions

PERCENT = 100.0
SOLVER_LABELS = {
    "auto": "Automatic: Gurobi where its licence allows, else HiGHS",
    "gurobi": "Gurobi only",
    "highs": "HiGHS only",
}
WARM_START_LABELS = {
    "best": "The best baseline",
    "none": "Nothing",
    "separate_pipelines": "Separate pipelines",
    "swarm": "Swarm",
    "petals": "Petals",
}


class PlanRunForm(forms.Form):
    """Percent and blanks as people write them; `plan_options` gives the planner's."""

    cluster = forms.ModelChoiceField(Cluster.objects.all(), empty_label=None)
    model = forms.ModelChoiceField(LanguageModel.objects.all(), empty_label=None)
    time_limit_s = forms.FloatField(
        label="Time limit (seconds)",
        min_value=options.MIN_TIME_LIMIT_S,
        max_value=options.MAX_TIME_LIMIT_S,
        initial=options.DEFAULTS.time_limit_s,
        help_text="You may cancel at any moment and keep the best plan so far.",
    )
    partial_inference = forms.BooleanField(
        required=False,
        initial=options.DEFAULTS.partial_inference,
        label="Partial inference: a node may run only some of the layers it holds",
    )
    solver = forms.ChoiceField(
        choices=[(name, SOLVER_LABELS[name]) for name in options.SOLVERS],
        initial=options.DEFAULTS.solver,
    )
    warm_start = forms.ChoiceField(
        label="Start from",
        choices=[(name, WARM_START_LABELS[name]) for name in options.WARM_STARTS],
        initial=options.DEFAULTS.warm_start,
        help_text="The placement the solver improves.",
    )
    prune_degree = forms.FloatField(
        required=False,
        label="Prune links to an average degree of",
        min_value=options.MIN_PRUNE_DEGREE,
        max_value=options.MAX_PRUNE_DEGREE,
        help_text="Blank: keep all links. Fewer links are searched faster, but prove no bound.",
    )
    gap_percent = forms.FloatField(
        label="Stop within (% of the bound)",
        min_value=0,
        max_value=options.MAX_RELATIVE_GAP * PERCENT,
        initial=options.DEFAULTS.relative_gap * PERCENT,
    )

    def plan_options(self) -> PlanOptions:
        """Raises planner's InvalidOptions; call after `is_valid`."""
        values: dict[str, Any] = self.cleaned_data
        return PlanOptions(
            time_limit_s=values["time_limit_s"],
            partial_inference=values["partial_inference"],
            solver=values["solver"],
            warm_start=values["warm_start"],
            prune_degree=values["prune_degree"],
            relative_gap=values["gap_percent"] / PERCENT,
        )
