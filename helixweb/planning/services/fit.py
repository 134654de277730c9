"""What would fit, what the baselines reach and no plan exceeds, before a run is started."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from django.utils.translation import gettext

from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.planning.options import DEFAULTS, OPTIONS
from planner.bounds import upper_bound_tokens_per_s
from planner.capacity import layer_limits, max_layers, most_held
from planner.domain.problem import Problem
from planner.placers.flow_meter import FlowMeter
from planner.plan_options import BASELINES
from planner.serialization import problem_from_dict, problem_to_dict


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


def preview_fit(*, cluster: Cluster, model: LanguageModel) -> Fit:
    """What a plan run would start from. Raises InvalidProblem for an incomplete inventory."""
    return _fit_of(json.dumps(problem_to_dict(build_problem(cluster, model))))


# Baselines of a thousand nodes take a moment.
@lru_cache(maxsize=16)
def _fit_of(document: str) -> Fit:
    problem = problem_from_dict(json.loads(document))
    needed, bound = problem.model.num_layers, upper_bound_tokens_per_s(problem)
    names_of: dict[str, list[str]] = defaultdict(list)
    for node in problem.cluster.nodes:
        names_of[node.compute_profile].append(node.name)
    limits = [layer_limits(problem, node.name) for node in problem.cluster.nodes]
    holdable = most_held(limits, num_layers=needed)
    return Fit(
        profiles=tuple(
            ProfileFit(
                profile=profile,
                gpu=problem.compute_profiles[profile].gpu,
                nodes=len(names),
                layers_per_node=max_layers(problem, names[0]),
            )
            for profile, names in sorted(names_of.items())
        ),
        layers_holdable=holdable,
        layers_needed=needed,
        upper_bound_tokens_per_s=bound,
        baselines=tuple(_baselines(problem, bound)) if holdable >= needed else (),
    )


def _baselines(problem: Problem, bound_tokens_per_s: float) -> Iterator[BaselineFit]:
    meter = FlowMeter(problem, DEFAULTS.search_options)
    for name, place in BASELINES.items():
        placement = place(problem)
        yield BaselineFit(
            name=name,
            flow_tokens_per_s=None if placement is None else meter.tokens_per_s(placement),
            upper_bound_tokens_per_s=bound_tokens_per_s,
        )
