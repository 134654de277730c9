"""Plan runs, the incumbents on their way, the plans they end in, and what explains a plan."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.access.scope import InCluster
from helixweb.common.events import emit
from helixweb.common.models import Job
from helixweb.common.sentences import in_words, sentence, translated
from helixweb.inventory.columns import cluster_key
from helixweb.planning.objectives import Goal, ObjectiveFigure, objective_figure
from helixweb.planning.options import choices_of
from planner import Objective

_ENDED = {
    "succeeded": gettext_noop("Plan run %(id)s succeeded."),
    "failed": gettext_noop("Plan run %(id)s failed."),
    "cancelled": gettext_noop("Plan run %(id)s was cancelled."),
}
_ADDED = gettext_noop("+%(count)s %(profile)s in %(region)s")
# As planner.explanation and helixweb.planning.what_if write them into rows.
_RESOURCES = (
    gettext_noop("+%(count)s %(profile)s in %(region)s, together"),
    _ADDED,
    gettext_noop("+10 %% of link %(source)s -> %(target)s"),
    gettext_noop("+10 %% of every link %(source)s -> %(target)s"),
    gettext_noop("+10 %% of shared bandwidth %(name)s"),
)
_EDITS = (
    gettext_noop("without %(name)s"),
    _ADDED,
    gettext_noop("another link %(source)s → %(target)s"),
    gettext_noop("%(name)s as %(profile)s"),
)


class Bounded:
    """Mixin of rows with a flow and the bound of any flow."""

    flow_tokens_per_s: Any
    upper_bound_tokens_per_s: Any

    @property
    def gap(self) -> float | None:
        """(bound - flow) / bound, 0 to 1; None while either is unknown."""
        return gap_below(self.upper_bound_tokens_per_s, self.flow_tokens_per_s)


class ObjectiveBounded(Bounded):
    """Mixin of rows with the value of an objective as well, and the bound of any value."""

    objective_value: Any
    objective_bound: Any

    @property
    def objective_gap(self) -> float | None:
        """(bound - value) / bound, 0 to 1; None while either is unknown."""
        return gap_below(self.objective_bound, self.objective_value)


def gap_below(bound: float | None, value: float | None) -> float | None:
    if value is None or bound is None:
        return None
    return max(0.0, 1.0 - value / bound) if bound > 0 else 0.0


class PlanRun(ObjectiveBounded, InCluster, Job):
    """One search for a plan. `problem` is the inventory as it was when the run was started.

    Flow and bound are those of the best incumbent; null until there is one. `objective_value` is
    its PlanForecast.value, or what is left of it after the worst loss; null where the flow is the
    objective. `objective_bound` is a proven bound on that value; null where none is proven. A run
    begins from `start_plan` if there is one, and continues where `continues` ended, or is one of
    its answers. `what_if` says how `problem` was changed before; blank: it was not.
    `accept_requested`: the search was stopped because its best is good enough, not given up.
    """

    cluster = cluster_key("plan_runs")
    model = models.ForeignKey(
        "inventory.LanguageModel", on_delete=models.CASCADE, related_name="plan_runs"
    )
    problem = models.JSONField()
    options = models.JSONField()
    solver = models.CharField(max_length=200, blank=True)
    flow_tokens_per_s = models.FloatField(null=True, blank=True)
    upper_bound_tokens_per_s = models.FloatField(null=True, blank=True)
    objective_value = models.FloatField(null=True, blank=True)
    objective_bound = models.FloatField(null=True, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    what_if = models.TextField(blank=True)
    survive_one_loss = models.BooleanField(default=False)
    accept_requested = models.BooleanField(default=False)
    start_plan = models.ForeignKey(
        "Plan", null=True, on_delete=models.SET_NULL, related_name="started_runs"
    )
    mix = models.ForeignKey("ModelMix", null=True, on_delete=models.SET_NULL, related_name="runs")
    continues = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="continuations"
    )
    event_type = "plan-run"
    event_columns = {"run": "pk"}
    large = ("problem",)

    class Meta:
        ordering = ["-pk"]

    @property
    def objective(self) -> Objective:
        """The objective of the run; rows of releases without a choice are for flow."""
        objective: Objective = self.options.get("objective", "flow")
        return objective

    @property
    def goal(self) -> Goal:
        """The objective, or the flow that is left after a loss."""
        is_survival = self.survive_one_loss and self.objective == "flow"
        return "survival" if is_survival else self.objective

    @property
    def figure(self) -> ObjectiveFigure:
        """The best value so far in words."""
        is_flow = self.goal == "flow"
        return self.figure_of(self.flow_tokens_per_s if is_flow else self.objective_value)

    def figure_of(self, value: float | None) -> ObjectiveFigure:
        """A value of its goal in words."""
        return objective_figure(self.goal, value, is_after_loss=self.survive_one_loss)

    @property
    def edits(self) -> str:
        """What `what_if` says, in the reader's language."""
        return ", ".join(translated(edit, _EDITS) for edit in self.what_if.split(", "))

    def note_end(self, status: str) -> None:
        """A line in the cluster's history of events."""
        emit(f"cluster:{self.cluster_id}", "event", sentence(_ENDED[status], id=self.pk))

    def age_s(self, *, now: datetime) -> float:
        """Seconds from its first start to its end or to `now`; 0 before it starts."""
        end = self.finished_at or now
        return (end - self.started_at).total_seconds() if self.started_at else 0.0


class Incumbent(ObjectiveBounded, InCluster):
    """A better placement, or a better bound, seen `elapsed_s` after the run first started.

    `objective_value` is by estimate, or the exact flow that is left after the worst loss; null
    where the flow is the objective. `objective_bound` is what no such value exceeds, null where
    none is proven. `components` are lists of node names, empty where all nodes
    serve together.
    """

    cluster_path = "run__cluster"

    run = models.ForeignKey(PlanRun, on_delete=models.CASCADE, related_name="incumbents")
    attempt = models.PositiveIntegerField()
    elapsed_s = models.FloatField()
    flow_tokens_per_s = models.FloatField()
    upper_bound_tokens_per_s = models.FloatField(null=True)
    objective_value = models.FloatField(null=True)
    objective_bound = models.FloatField(null=True)
    placer = models.CharField(max_length=40)
    placement = models.JSONField()
    components = models.JSONField(default=list)

    class Meta:
        ordering = ["pk"]

    @property
    def value(self) -> float:
        """The value of the search's objective."""
        return self.flow_tokens_per_s if self.objective_value is None else self.objective_value

    @property
    def figure(self) -> ObjectiveFigure:
        """The same in words; `run` is known."""
        is_flow = self.objective_value is None
        return objective_figure("flow", self.value) if is_flow else self.run.figure_of(self.value)


class Plan(Bounded, InCluster):
    """A checked plan: `document` is `helixweb.plan/1`, `problem` what it was computed for."""

    large = ("problem", "document")

    cluster = cluster_key("plans")
    model = models.ForeignKey(
        "inventory.LanguageModel", on_delete=models.CASCADE, related_name="plans"
    )
    run = models.OneToOneField(PlanRun, null=True, on_delete=models.CASCADE, related_name="plan")
    document = models.JSONField()
    problem = models.JSONField()
    flow_tokens_per_s = models.FloatField()
    upper_bound_tokens_per_s = models.FloatField()
    hops = models.FloatField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]


class Replan(InCluster):
    """Additional columns of a replanning: the plan that runs, and how many bytes may move.

    `points` is the Pareto front in value and bytes, fewest bytes first, as
    `incumbents.point_to_json` writes them; empty until the search has ended.
    """

    cluster_path = "run__cluster"

    run = models.OneToOneField(PlanRun, on_delete=models.CASCADE, related_name="replan")
    running_plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="replans")
    budget_bytes = models.FloatField(null=True)
    points = models.JSONField(default=list)


def value_of_point(point: Mapping[str, Any]) -> float:
    """The objective's value of an answer: its flow if it has no other value."""
    value = point.get("objective_value")
    return float(point["flow_tokens_per_s"] if value is None else value)


class JobOfPlan(InCluster, Job):
    """Work on a plan after its search; the page of the plan's run shows it."""

    cluster_path = "plan__cluster"
    plan: Any

    class Meta:
        abstract = True

    @property
    def topic(self) -> str:
        """The event topic of the plan's run."""
        return f"plan-run:{self.plan.run_id}"


class Explanation(JobOfPlan):
    """Why a plan is no faster, what survives a loss, what one more of each resource would bring.

    `search_s` seconds of replanning go to every kind of node; 0: the others keep their layers.
    `values` are planner.explanation.MarginalValue, the most valuable first. These and what survives
    are values of `objective`: exact flows, or estimates.
    """

    plan = models.OneToOneField(Plan, on_delete=models.CASCADE, related_name="explanation")
    search_s = models.FloatField(default=0.0)
    objective = models.CharField(max_length=12, default="flow")
    limits = models.JSONField(default=list)
    survival_tokens_per_s = models.FloatField(null=True)
    worst_node = models.CharField(max_length=64, blank=True)
    values = models.JSONField(default=list)
    event_type = "explanation"

    @property
    def sentences(self) -> list[str]:
        """What limits the plan, in the reader's language; in English in rows of older releases."""
        return [line if isinstance(line, str) else in_words(line) for line in self.limits]

    @property
    def survival(self) -> ObjectiveFigure:
        """The value left when the worst node is lost, in words."""
        return objective_figure(self._goal, self.survival_tokens_per_s, is_after_loss=True)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The values with their figures in words."""
        figures = ("kept", "replanned")
        return [
            value
            | {"resource": translated(value["resource"], _RESOURCES)}
            | {
                name: objective_figure(self._goal, value[f"{name}_tokens_per_s"])
                for name in figures
            }
            for value in self.values
        ]

    @property
    def figure(self) -> ObjectiveFigure:
        """The objective of the values, with its unit."""
        return objective_figure(self._goal, None)

    @property
    def _goal(self) -> Goal:
        goal: Goal = self.objective  # type: ignore[assignment]  # a column has no type of its own
        return goal

    event_columns = {"plan": "plan_id"}


class Simulation(JobOfPlan):
    """A plan served a workload by the simulator.

    Requests always wait ("backlog"), or come at `share` of the prompt and output tokens/s that a
    backlog reaches: `requests_per_s`, one by one ("poisson") or `burst_size` at once ("bursts").
    `forecast` is what `studies.forecast_to_json` wrote, null until it has ended.
    """

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="simulations")
    workload = models.CharField(max_length=10, choices=choices_of("workload"), default="backlog")
    share = models.FloatField(null=True)
    burst_size = models.PositiveIntegerField(null=True)
    policy = models.CharField(max_length=10, choices=choices_of("policy"), default="runtime")
    seed = models.PositiveBigIntegerField(default=0)
    progress = models.FloatField(default=0.0)
    requests_per_s = models.FloatField(null=True)
    forecast = models.JSONField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    event_type = "simulation"
    event_columns = {"simulation": "pk", "plan": "plan_id"}

    class Meta:
        ordering = ["pk"]

    @property
    def workload_text(self) -> str:
        """The workload in a few words."""
        if self.workload == "backlog":
            return _("offline, requests always wait")
        at_once = (
            _(" in bursts of %(burst_size)s") % {"burst_size": self.burst_size}
            if self.burst_size
            else ""
        )
        return _("%(share)s of the peak%(at_once)s") % {
            "share": f"{self.share or 0:.0%}",
            "at_once": at_once,
        }


class ModelMix(InCluster, Job):
    """Several models planned on one cluster at once; each one's plan is that of a finished run.

    `level_tokens_per_s` is the least value / weight: of exact flows, or estimates. No mix exceeds
    the bound, which is known of flows only.
    """

    cluster = cluster_key("mixes")
    options = models.JSONField()
    level_tokens_per_s = models.FloatField(null=True)
    level_bound_tokens_per_s = models.FloatField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    event_type = "model-mix"
    event_columns = {"mix": "pk"}

    @property
    def goal(self) -> Goal:
        """The objective."""
        goal: Goal = self.options.get("objective", "flow")
        return goal

    @property
    def figure(self) -> ObjectiveFigure:
        """The level in words."""
        return objective_figure(self.goal, self.level_tokens_per_s)

    class Meta:
        ordering = ["-pk"]


class MixShare(InCluster):
    """One model of a mix, its weight, and the cluster as it was when the mix was started."""

    cluster_path = "mix__cluster"
    large = ("problem",)

    mix = models.ForeignKey(ModelMix, on_delete=models.CASCADE, related_name="shares")
    model = models.ForeignKey(
        "inventory.LanguageModel", on_delete=models.CASCADE, related_name="mix_shares"
    )
    weight = models.FloatField()
    problem = models.JSONField()

    class Meta:
        ordering = ["pk"]
