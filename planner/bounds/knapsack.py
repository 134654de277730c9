"""Proven upper bounds on the flow of every placement of a problem, in tokens/s.

Valid with and without links and partial inference, because both only take connections away.
"""

from collections import Counter
from typing import TypeAlias

from planner.domain.problem import Problem

_Options: TypeAlias = tuple[tuple[int, float], ...]

_BISECTION_RELATIVE_WIDTH = 1e-9
# Where the layers fit exactly, both sides of the inequality are equal and rounding decides: the
# test leans to "possible", which can only raise the bound.
_POSSIBLE_RELATIVE_TOLERANCE = 1e-12


def compute_bound_tokens_per_s(problem: Problem) -> float:
    """B0 = sum over nodes of max_j j * T_j, / L: all compute spread over all layers (§4.5)."""
    work = sum(
        count * max((layers * speed for layers, speed in options), default=0.0)
        for options, count in _options_of_nodes(problem).items()
    )
    return work / problem.model.num_layers


def knapsack_bound_tokens_per_s(problem: Problem) -> float:
    """B1 = the largest F with sum over nodes of max_j j * min(T_j, F) >= L * F; at most B0.

    A flow of F has L * F layer-tokens/s of work, and a node that holds j layers does at most
    j * min(T_j, F) of it: speed beyond F is of no use. The left side / F falls with F, so
    bisection finds the end of the possible range; the returned side is the impossible one. A
    cluster that holds the model at some speed has a possible F above 0, so the bisection ends.
    """
    options_of_nodes = _options_of_nodes(problem)
    num_layers = problem.model.num_layers

    def is_possible(flow: float) -> bool:
        work = sum(
            count * max((layers * min(speed, flow) for layers, speed in options), default=0.0)
            for options, count in options_of_nodes.items()
        )
        return work >= num_layers * flow * (1 - _POSSIBLE_RELATIVE_TOLERANCE)

    if not _can_hold_model(problem, options_of_nodes):
        return 0.0
    low, high = 0.0, compute_bound_tokens_per_s(problem)
    while high - low > _BISECTION_RELATIVE_WIDTH * high:
        middle = (low + high) / 2
        if is_possible(middle):
            low = middle
        else:
            high = middle
    return high


def _can_hold_model(problem: Problem, options_of_nodes: "Counter[_Options]") -> bool:
    """Whether the nodes can hold every layer while all of them still run."""
    holdable = sum(
        count * max((layers for layers, speed in options if speed > 0), default=0)
        for options, count in options_of_nodes.items()
    )
    return holdable >= problem.model.num_layers


def _options_of_nodes(problem: Problem) -> "Counter[_Options]":
    """The pairs (j, T_j) of what a node may hold, and how many nodes have them."""
    options: Counter[_Options] = Counter()
    for profile, count in Counter(node.compute_profile for node in problem.cluster.nodes).items():
        speeds = problem.compute_profiles[profile]
        longest = min(speeds.max_layers, problem.model.num_layers)
        pairs = (
            (layers, speeds.throughput_tokens_per_s(layers)) for layers in range(1, longest + 1)
        )
        options[tuple(pairs)] += count
    return options
