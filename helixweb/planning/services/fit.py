"""What would fit, what the baselines reach and no plan exceeds, before a run is started."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext

from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.planning.options import DEFAULTS, OPTIONS
from planner.bounds import upper_bound_tokens_per_s
from planner.capacity import layer_limits, max_layers, most_held
from planner.domain.problem import Problem
from planner.placers.flow_meter import FlowMeter
from planner.plan_options import BASELINES

# Clusters and models, whose answers are kept: baselines of a thousand nodes take a moment.
KEPT = 16


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
        return gettext(OPTIONS["baselines"].spec.choices[self.name])

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
    layers_holdable: int
    layers_needed: int
    upper_bound_tokens_per_s: float
    baselines: tuple[BaselineFit, ...]

    @property
    def ends_cost_layers(self) -> int:
        """Layers that nodes cannot hold beside the embedding and the output head."""
        return sum(profile.layers for profile in self.profiles) - self.layers_holdable

    @property
    def layers_held(self) -> int:
        """Layers of the model that have room."""
        return min(self.layers_holdable, self.layers_needed)

    @property
    def layers_short(self) -> float:
        """Between too few layers and enough: a bar turns from bad to good there."""
        return self.layers_needed - 0.5

    @property
    def fits(self) -> bool:
        return self.layers_holdable >= self.layers_needed


# The latest answer for each cluster and model, with its problem; under `_lock`.
_answers: dict[tuple[int, int], tuple[Problem, Fit]] = {}
_lock = threading.Lock()


def preview_fit(*, cluster: Cluster, model: LanguageModel) -> Fit:
    """What a plan run would start from. Raises InvalidProblem for an incomplete inventory."""
    problem = build_problem(cluster, model)
    key = cluster.pk, model.pk
    with _lock:
        known = _answers.get(key)
    if known is not None and known[0] == problem:
        return known[1]
    fit = _fit_of_all(problem)
    with _lock:
        _answers[key] = problem, fit
        while len(_answers) > KEPT:
            del _answers[next(iter(_answers))]
    return fit


def _fit_of_all(problem: Problem) -> Fit:
    profiles = tuple(_fit_of(problem, name) for name in sorted(_profiles_in_use(problem)))
    needed, bound = problem.model.num_layers, upper_bound_tokens_per_s(problem)
    limits = [layer_limits(problem, node.name) for node in problem.cluster.nodes]
    holdable = most_held(limits, num_layers=needed)
    return Fit(
        profiles=profiles,
        layers_holdable=holdable,
        layers_needed=needed,
        upper_bound_tokens_per_s=bound,
        baselines=tuple(_baselines(problem, upper_bound_tokens_per_s=bound))
        if holdable >= needed
        else (),
    )


def _baselines(problem: Problem, *, upper_bound_tokens_per_s: float) -> Iterator[BaselineFit]:
    meter = FlowMeter(problem, DEFAULTS.search_options)
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
