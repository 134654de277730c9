"""All bounds of a problem, the cheap ones first."""

import math
from collections.abc import Callable, Iterator

from planner.bounds.crossing import crossing_bounds_tokens_per_s
from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.link_groups import LinkTable, link_groups
from planner.bounds.node_kinds import NO_RULES, node_kinds
from planner.bounds.pattern import pattern_bounds_tokens_per_s
from planner.bounds.shared import shared_bound_tokens_per_s
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules


def upper_bound_tokens_per_s(problem: Problem) -> float:
    """The best bound that costs milliseconds whatever the problem."""
    return knapsack_bound_tokens_per_s(problem)


def quick_bounds_tokens_per_s(
    problem: Problem, *, rules: PlacementRules = NO_RULES
) -> Iterator[float]:
    """Ever tighter bounds, as they are proven; stop whenever enough is known.

    Those that take less than a second whatever the problem: knapsack, shared, pattern.
    """
    bound = knapsack_bound_tokens_per_s(problem)
    yield bound
    shared = shared_bound_tokens_per_s(problem)
    if shared < bound:
        bound = shared
        yield bound
    kinds = node_kinds(
        problem, rules=rules, usable_tokens_per_s=_usable(problem, LinkTable(problem), bound)
    )
    yield from pattern_bounds_tokens_per_s(
        kinds,
        num_layers=problem.model.num_layers,
        known_bound_tokens_per_s=bound,
        max_hops=rules.max_hops,
    )


def slow_link_bounds_tokens_per_s(
    problem: Problem,
    *,
    rules: PlacementRules = NO_RULES,
    known_bound_tokens_per_s: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[float]:
    """Bounds below the known one that charge slow links; on many regions they take many seconds."""
    links = LinkTable(problem)
    kinds = node_kinds(
        problem,
        rules=rules,
        groups=link_groups(problem, links),
        usable_tokens_per_s=_usable(problem, links, knapsack_bound_tokens_per_s(problem)),
    )
    return crossing_bounds_tokens_per_s(
        kinds,
        links,
        num_layers=problem.model.num_layers,
        known_bound_tokens_per_s=known_bound_tokens_per_s,
        should_stop=should_stop,
    )


def _usable(problem: Problem, links: LinkTable, bound: float) -> dict[str, float]:
    """Limit of each node by its links; inf above the bound, so nodes with ample links are equal."""
    return {
        name: tokens_per_s if tokens_per_s < bound else math.inf
        for name, tokens_per_s in links.usable_tokens_per_s(problem).items()
    }
