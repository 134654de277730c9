"""Requests to come: lengths and arrivals, from traces or generators, and backlogs.

Knows nothing of clusters; the simulator, commands and benchmarks import it.
"""

from planner.workload.arrivals import bursts, poisson, rate_at_share_of_peak, requests
from planner.workload.demand import Arrivals, Backlog, Demand
from planner.workload.lengths import scaled_lengths
from planner.workload.request import InvalidWorkload, Lengths

__all__ = [
    "Arrivals", "Backlog", "Demand", "InvalidWorkload", "Lengths", "bursts", "poisson",
    "rate_at_share_of_peak", "requests", "scaled_lengths",
]  # fmt: skip
