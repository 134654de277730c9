"""Proven upper bounds on the flow of every placement: knapsack, pattern, crossing, best of all.

`planner.placers` and `planner.planning` import it; most need only what is named below.
"""

from planner.bounds.best import (
    quick_bounds_tokens_per_s,
    slow_link_bounds_tokens_per_s,
    upper_bound_tokens_per_s,
)
from planner.bounds.knapsack import compute_bound_tokens_per_s, knapsack_bound_tokens_per_s

__all__ = [
    "compute_bound_tokens_per_s",
    "knapsack_bound_tokens_per_s",
    "quick_bounds_tokens_per_s",
    "slow_link_bounds_tokens_per_s",
    "upper_bound_tokens_per_s",
]
