"""What would fit, and the bound on any plan's flow, before a run is started."""

from dataclasses import dataclass

from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services import build_problem
from planner.bounds import upper_bound_tokens_per_s
from planner.capacity import max_layers
from planner.domain.problem import Problem


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
