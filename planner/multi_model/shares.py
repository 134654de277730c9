"""Models that share a cluster: what is asked for, and what is answered."""

from dataclasses import dataclass

from planner.capacity import ModelDoesNotFit
from planner.domain.errors import InvalidProblem
from planner.domain.plan import Plan
from planner.domain.plan_forecast import Objective
from planner.domain.problem import Problem
from planner.objectives.search import LimitsNotKept
from planner.placers.base import InvalidOptions
from planner.plan_options import PlanOptions
from planner.planning import NoPlacementFound

# Objectives whose values are tokens/s, so that weights are shares of them.
MIXED: tuple[Objective, ...] = ("decode", "flow", "latency")


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

    `level_tokens_per_s` is the least, over the models, of `served_by` / weight. No mix exceeds
    `level_bound_tokens_per_s`; None: no bound is known, since the flow is not the objective.
    """

    plans: tuple[Plan, ...]
    level_tokens_per_s: float
    level_bound_tokens_per_s: float | None


class NoDealFound(NoPlacementFound):
    """No way to give every model nodes that can hold it."""


# Why one model has no plan on the nodes that it was given.
NOT_PLANNED = (NoPlacementFound, ModelDoesNotFit, LimitsNotKept)


def served_by(plan: Plan) -> float:
    """Tokens/s: of the flow, or as forecast where that is not the objective."""
    return plan.flow.value_tokens_per_s if plan.forecast is None else plan.forecast.value


def check_shares(shares: tuple[ModelShare, ...], options: PlanOptions) -> None:
    """Raise InvalidProblem unless these are models of one cluster, and nothing is pinned.

    Raises InvalidOptions for an objective that is not in tokens/s.
    """
    rules = options.rules
    if options.objective not in MIXED:
        raise InvalidOptions(
            f"the objective is {options.objective!r}, but a mix shares a cluster by tokens/s; use "
            f"one of: {', '.join(MIXED)}"
        )
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
