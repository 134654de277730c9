"""What people do with plan runs: start one, cancel one, see what would fit before they do."""

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from helixweb.common import events, leases
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services import build_problem
from helixweb.planning import tasks
from helixweb.planning.models import PlanRun
from helixweb.planning.options import options_to_json
from planner.bounds import upper_bound_tokens_per_s
from planner.capacity import check_cluster_can_hold_model, max_layers
from planner.compute_plan import PlanOptions
from planner.domain.problem import Problem
from planner.serialization import problem_to_dict


def start_plan_run(
    *, cluster: Cluster, model: LanguageModel, options: PlanOptions, user: Any
) -> PlanRun:
    """Queue a search on the inventory as it is now.

    Raises InvalidProblem for an incomplete inventory and ModelDoesNotFit, before anything is
    written.
    """
    problem = build_problem(cluster, model)
    check_cluster_can_hold_model(problem)
    with transaction.atomic():
        run = PlanRun.objects.create(
            cluster=cluster,
            model=model,
            problem=problem_to_dict(problem),
            options=options_to_json(options),
            created_by=user,
        )
        events.emit(
            f"cluster:{cluster.pk}",
            "event",
            {"text": f"{user} started plan run {run.pk} for {model.name}."},
        )
        # The row is the truth: if the broker is away, the reaper sends the message later.
        transaction.on_commit(lambda: tasks.wake_plan_run(run.pk), robust=True)
    return run


def cancel_plan_run(run: PlanRun) -> bool:
    """Ask the search to end with its best so far; False if it had ended already."""
    with transaction.atomic():
        cancelled = leases.request_cancel(PlanRun, task_id=run.pk, now=timezone.now())
        if cancelled:
            run.refresh_from_db(fields=["status", "cancel_requested", "finished_at"])
            content = {"run": run.pk, "status": run.status, "cancel_requested": True}
            events.emit(run.topic, "plan-run", content)
    return cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFit:
    """How many layers the nodes of one profile may hold."""

    profile: str
    gpu: str
    nodes: int
    layers_per_node: int

    @property
    def layers(self) -> int:
        return self.nodes * self.layers_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Layers the cluster can hold against layers needed, and the bound on any plan's flow."""

    profiles: tuple[ProfileFit, ...]
    layers_needed: int
    upper_bound_tokens_per_s: float

    @property
    def layers_holdable(self) -> int:
        return sum(profile.layers for profile in self.profiles)

    @property
    def fits(self) -> bool:
        return self.layers_holdable >= self.layers_needed


def preview_fit(*, cluster: Cluster, model: LanguageModel) -> Fit:
    """What a plan run would start from. Raises InvalidProblem for an incomplete inventory."""
    problem = build_problem(cluster, model)
    return Fit(
        profiles=tuple(_fit_of(problem, name) for name in sorted(_profiles_in_use(problem))),
        layers_needed=problem.model.num_layers,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(problem),
    )


def _profiles_in_use(problem: Problem) -> set[str]:
    return {node.compute_profile for node in problem.cluster.nodes}


def _fit_of(problem: Problem, profile: str) -> ProfileFit:
    names = [node.name for node in problem.cluster.nodes if node.compute_profile == profile]
    return ProfileFit(
        profile=profile,
        gpu=problem.compute_profiles[profile].gpu,
        nodes=len(names),
        layers_per_node=max_layers(problem, names[0]),
    )
