"""All bounds of a problem, the cheap ones first."""

from collections.abc import Iterator
from dataclasses import dataclass

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.node_kinds import NO_RULES, node_kinds
from planner.bounds.pattern import pattern_bounds_tokens_per_s
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenBound:
    """No placement's flow exceeds `tokens_per_s`; `method` proved it."""

    tokens_per_s: float
    method: str


def upper_bound_tokens_per_s(problem: Problem) -> float:
    """The best bound that costs milliseconds whatever the problem."""
    return knapsack_bound_tokens_per_s(problem)


def proven_bounds(problem: Problem, *, rules: PlacementRules = NO_RULES) -> Iterator[ProvenBound]:
    """Ever tighter bounds, as they are proven; stop whenever enough is known."""
    bound = knapsack_bound_tokens_per_s(problem)
    yield ProvenBound(tokens_per_s=bound, method="knapsack")
    kinds = node_kinds(problem, rules=rules)
    for tighter in pattern_bounds_tokens_per_s(
        kinds, num_layers=problem.model.num_layers, known_bound_tokens_per_s=bound
    ):
        bound = tighter
        yield ProvenBound(tokens_per_s=bound, method="pattern")
