"""One number per plan to make large, for each objective."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.domain.plan_forecast import LimitPercentile, Objective
from planner.domain.problem import Problem
from planner.estimate.compiled.stage_search import Aim
from planner.placers.base import InvalidOptions

_SECONDS_PER_HOUR = 3600.0
_TOKENS_PER_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`price_of` is per hour of a node, whatever the currency; only the objective "cost" reads it.

    Limits are on TTFT and TPOT of the request at `limit_percentile` and hold for "latency" only;
    estimates hold their means against them.
    """

    objective: Objective
    ttft_limit_s: float = math.inf
    tpot_limit_s: float = math.inf
    limit_percentile: LimitPercentile = "p50"
    demand_tokens_per_s: float = 0.0
    price_of: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_limits(self) -> bool:
        return min(self.ttft_limit_s, self.tpot_limit_s) < math.inf

    @property
    def aim(self) -> Aim:
        if self.objective == "cost":
            return Aim.PER_PRICE
        if self.objective == "fewest_nodes":
            return Aim.FEWEST_NODES
        return Aim.THROUGHPUT

    def value(self, decode_tokens_per_s: float, *, used: tuple[str, ...], nodes: int) -> float:
        """Of a plan that uses some of the cluster's `nodes` nodes; larger is better.

        "cost": million tokens per price. "fewest_nodes": the served share of the demand, and from
        1 on one more for every node spared.
        """
        if self.objective == "cost":
            price = sum(self.price_of[name] for name in used)
            return decode_tokens_per_s * _SECONDS_PER_HOUR / _TOKENS_PER_MILLION / price
        if self.objective == "fewest_nodes":
            share = decode_tokens_per_s / self.demand_tokens_per_s
            return share if share < 1 else 1.0 + (nodes - len(used) + 1)
        return decode_tokens_per_s


def goal_for(
    problem: Problem,
    *,
    objective: Objective,
    ttft_limit_s: float | None,
    tpot_limit_s: float | None,
    demand_tokens_per_s: float | None,
    limit_percentile: LimitPercentile = "p50",
) -> Goal:
    """Raises InvalidOptions for an objective that lacks what it needs."""
    prices: dict[str, float] = {}
    if objective == "cost":
        for node in problem.cluster.nodes:
            price = problem.price_per_hour(node.name)
            if price is None:
                raise InvalidOptions(
                    f"objective is 'cost' but node {node.name!r} has no price; give it or its "
                    f"compute profile {node.compute_profile!r} a price_per_hour"
                )
            prices[node.name] = price
    is_latency = objective == "latency"
    return Goal(
        objective=objective,
        ttft_limit_s=ttft_limit_s if is_latency and ttft_limit_s is not None else math.inf,
        tpot_limit_s=tpot_limit_s if is_latency and tpot_limit_s is not None else math.inf,
        limit_percentile=limit_percentile,
        demand_tokens_per_s=demand_tokens_per_s or 0.0,
        price_of=prices,
    )
