"""Models that share a cluster: what is asked for, and what is answered."""

from dataclasses import dataclass

from planner.domain.errors import InvalidProblem
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.planning import NoPlacementFound


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShare:
    """One model of the mix: its problem on the common cluster, and its weight."""

    problem: Problem
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise InvalidProblem(
                f"the weight of {self.problem.model.name!r} is {self.weight}; it must be above 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMix:
    """A plan for each model, in order; no two use a node.

    `level_tokens_per_s` is the least flow / weight, `level_bound_tokens_per_s` what none exceeds.
    """

    plans: tuple[Plan, ...]
    level_tokens_per_s: float
    level_bound_tokens_per_s: float


class NoDealFound(NoPlacementFound):
    """No way to give every model nodes that can hold it."""


def check_shares(shares: tuple[ModelShare, ...], rules: PlacementRules) -> None:
    """Raises InvalidProblem unless these are models of one cluster, and nothing is pinned."""
    if not shares:
        raise InvalidProblem("there is no model to place; name at least one problem")
    if rules.pinned:
        raise InvalidProblem(
            f"node {min(rules.pinned)!r} is pinned, but several models share the cluster; "
            "pins work for one model only"
        )
    first = {node.name: node.region for node in shares[0].problem.cluster.nodes}
    for share in shares[1:]:
        nodes = {node.name: node.region for node in share.problem.cluster.nodes}
        if nodes != first:
            different = min(set(nodes.items()) ^ set(first.items()))[0]
            raise InvalidProblem(
                f"problems {shares[0].problem.name!r} and {share.problem.name!r} differ in node "
                f"{different!r}; several models are planned on one cluster"
            )
