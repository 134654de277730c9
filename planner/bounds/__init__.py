"""Proven upper bounds on the flow of every placement: knapsack, pattern, crossing, best of all.

`planner.placers` and `planner.planning` import it; most need only what is named below.
"""

from planner.bounds.best import (
    ProvenBound,
    crossing_bounds,
    proven_bounds,
    quick_bounds,
    upper_bound_tokens_per_s,
)
from planner.bounds.knapsack import compute_bound_tokens_per_s, knapsack_bound_tokens_per_s

__all__ = [
    "ProvenBound",
    "compute_bound_tokens_per_s",
    "crossing_bounds",
    "knapsack_bound_tokens_per_s",
    "proven_bounds",
    "quick_bounds",
    "upper_bound_tokens_per_s",
]
