"""All bounds of a problem, the cheap ones first."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.bounds.crossing import crossing_bounds_tokens_per_s
from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.link_groups import LinkTable, link_groups
from planner.bounds.node_kinds import NO_RULES, node_kinds
from planner.bounds.pattern import pattern_bounds_tokens_per_s
from planner.bounds.shared import shared_bound_tokens_per_s
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
    known = math.inf
    for bound in quick_bounds(problem, rules=rules):
        known = bound.tokens_per_s
        yield bound
    yield from crossing_bounds(problem, rules=rules, known_bound_tokens_per_s=known)


def quick_bounds(problem: Problem, *, rules: PlacementRules = NO_RULES) -> Iterator[ProvenBound]:
    """Those that take less than a second whatever the problem: knapsack, shared, pattern."""
    bound = knapsack_bound_tokens_per_s(problem)
    yield ProvenBound(tokens_per_s=bound, method="knapsack")
    shared = shared_bound_tokens_per_s(problem)
    if shared < bound:
        bound = shared
        yield ProvenBound(tokens_per_s=bound, method="shared bandwidth")
    kinds = node_kinds(
        problem, rules=rules, usable_tokens_per_s=_usable(problem, LinkTable(problem), bound)
    )
    tighter = pattern_bounds_tokens_per_s(
        kinds,
        num_layers=problem.model.num_layers,
        known_bound_tokens_per_s=bound,
        max_hops=rules.max_hops,
    )
    for bound in tighter:
        yield ProvenBound(tokens_per_s=bound, method="pattern")


def crossing_bounds(
    problem: Problem,
    *,
    rules: PlacementRules = NO_RULES,
    known_bound_tokens_per_s: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[ProvenBound]:
    """Bounds below the known one that charge slow links; on many regions they take many seconds."""
    links = LinkTable(problem)
    kinds = node_kinds(
        problem,
        rules=rules,
        groups=link_groups(problem, links),
        usable_tokens_per_s=_usable(problem, links, knapsack_bound_tokens_per_s(problem)),
    )
    tighter = crossing_bounds_tokens_per_s(
        kinds,
        links,
        num_layers=problem.model.num_layers,
        known_bound_tokens_per_s=known_bound_tokens_per_s,
        should_stop=should_stop,
    )
    for bound in tighter:
        yield ProvenBound(tokens_per_s=bound, method="crossing")


def _usable(problem: Problem, links: LinkTable, bound: float) -> dict[str, float]:
    """What no flow reaches, no link limits: nodes stay alike as long as their links are ample."""
    return {
        name: tokens_per_s if tokens_per_s < bound else math.inf
        for name, tokens_per_s in links.usable_tokens_per_s(problem).items()
    }
