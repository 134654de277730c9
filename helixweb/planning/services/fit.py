"""What would fit, what the baselines reach and no plan exceeds, before a run is started."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext_lazy

from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services import build_problem
from helixweb.planning.options import DEFAULTS
from planner.bounds import upper_bound_tokens_per_s
from planner.capacity import max_layers
from planner.domain.problem import Problem
from planner.placers.flow_meter import FlowMeter
from planner.plan_options import BASELINES

# Clusters and models, whose answers are kept: baselines of a thousand nodes take a moment.
KEPT = 16
BASELINE_TITLES = {
    "separate_pipelines": gettext_lazy("Separate pipelines"),
    "swarm": gettext_lazy("Swarm"),
    "petals": gettext_lazy("Petals"),
}


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
class BaselineFit:
    """The max flow of a baseline's placement; None: it finds none."""

    name: str
    flow_tokens_per_s: float | None
    upper_bound_tokens_per_s: float

    @property
    def title(self) -> str:
        """In the reader's language."""
        return str(BASELINE_TITLES[self.name])

    @property
    def share_of_bound(self) -> float | None:
        if self.flow_tokens_per_s is None or self.upper_bound_tokens_per_s <= 0:
            return None
        return self.flow_tokens_per_s / self.upper_bound_tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Layers the cluster can hold against layers needed, and the bound on any plan's flow.

    `baselines` are empty where the model does not fit.
    """

    profiles: tuple[ProfileFit, ...]
    layers_needed: int
    upper_bound_tokens_per_s: float
    baselines: tuple[BaselineFit, ...]

    @property
    def layers_holdable(self) -> int:
        return sum(profile.layers for profile in self.profiles)

    @property
    def fits(self) -> bool:
        return self.layers_holdable >= self.layers_needed


# What was answered last of each cluster and model, and of which problem.
_seen: dict[tuple[int, int], tuple[Problem, Fit]] = {}


def preview_fit(*, cluster: Cluster, model: LanguageModel) -> Fit:
    """What a plan run would start from. Raises InvalidProblem for an incomplete inventory."""
    problem = build_problem(cluster, model)
    seen = _seen.get((cluster.pk, model.pk))
    if seen is None or seen[0] != problem:
        _seen[cluster.pk, model.pk] = seen = problem, _fit_of_all(problem)
        while len(_seen) > KEPT:
            _seen.pop(next(iter(_seen)), None)
    return seen[1]


def _fit_of_all(problem: Problem) -> Fit:
    profiles = tuple(_fit_of(problem, name) for name in sorted(_profiles_in_use(problem)))
    needed, bound = problem.model.num_layers, upper_bound_tokens_per_s(problem)
    fits = sum(profile.layers for profile in profiles) >= needed
    return Fit(
        profiles=profiles,
        layers_needed=needed,
        upper_bound_tokens_per_s=bound,
        baselines=tuple(_baselines(problem, upper_bound_tokens_per_s=bound)) if fits else (),
    )


def _baselines(problem: Problem, *, upper_bound_tokens_per_s: float) -> Iterator[BaselineFit]:
    meter = FlowMeter(problem, DEFAULTS.search_options(time_limit_s=DEFAULTS.time_limit_s))
    for name, place in BASELINES.items():
        placement = place(problem)
        yield BaselineFit(
            name=name,
            flow_tokens_per_s=None if placement is None else meter.tokens_per_s(placement),
            upper_bound_tokens_per_s=upper_bound_tokens_per_s,
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
