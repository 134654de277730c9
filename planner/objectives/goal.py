"""Objectives: a class for each turns a forecast into one number to maximise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

from planner.domain.plan_forecast import DEMAND_MET, LimitPercentile, Objective
from planner.domain.problem import Problem
from planner.placers.base import InvalidOptions
from planner.plan_options import PlanOptions

_SECONDS_PER_HOUR = 3600.0
_TOKENS_PER_MILLION = 1e6


class Aim(IntEnum):
    """The value of a goal as `stage_search.c` computes it."""

    THROUGHPUT = 0
    PER_PRICE = 1
    FEWEST_NODES = 2


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Decode throughput in tokens/s, and what is true of the other goals unless they say more."""

    objective: ClassVar[Objective] = "decode"
    aim: ClassVar[Aim] = Aim.THROUGHPUT
    # Whether a search by simulation around the best plan by estimate is worth its time.
    climbs: ClassVar[bool] = True
    ttft_limit_s: float = math.inf
    tpot_limit_s: float = math.inf
    limit_percentile: LimitPercentile = "p50"
    demand_tokens_per_s: float = 0.0
    price_of: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_limits(self) -> bool:
        return min(self.ttft_limit_s, self.tpot_limit_s) < math.inf

    def cost_of(self, name: str) -> float:
        """Cost of using the node, by which throughput is divided."""
        return 0.0

    def value(self, decode_tokens_per_s: float, *, used: tuple[str, ...], nodes: int) -> float:
        """Value of a plan that uses some of the cluster's `nodes` nodes; larger is better."""
        return decode_tokens_per_s


class WithinLimits(Goal):
    """Decode throughput while the request at `limit_percentile` meets the TTFT and TPOT limits.

    Estimates hold their means against the limits.
    """

    objective = "latency"
    climbs = False


class TokensPerPrice(Goal):
    """Million decode tokens for a unit of price; `price_of` is per hour of a node."""

    objective = "cost"
    aim = Aim.PER_PRICE
    climbs = False

    def cost_of(self, name: str) -> float:
        return self.price_of[name] * _TOKENS_PER_MILLION / _SECONDS_PER_HOUR

    def value(self, decode_tokens_per_s: float, *, used: tuple[str, ...], nodes: int) -> float:
        return decode_tokens_per_s / sum(self.cost_of(name) for name in used)


class FewestNodes(Goal):
    """The served share of the demand, and from 1 on one more for every node spared."""

    objective = "fewest_nodes"
    aim = Aim.FEWEST_NODES
    climbs = False

    def value(self, decode_tokens_per_s: float, *, used: tuple[str, ...], nodes: int) -> float:
        share = decode_tokens_per_s / self.demand_tokens_per_s
        return share if share < 1 else DEMAND_MET + nodes - len(used)


def goal_for(problem: Problem, options: PlanOptions) -> Goal:
    """The goal of the options' objective. Raises InvalidOptions if a node has no price."""
    if options.objective == "latency":
        ttft_s, tpot_s = options.ttft_limit_s, options.tpot_limit_s
        return WithinLimits(
            ttft_limit_s=math.inf if ttft_s is None else ttft_s,
            tpot_limit_s=math.inf if tpot_s is None else tpot_s,
            limit_percentile=options.limit_percentile,
        )
    if options.objective == "cost":
        return TokensPerPrice(price_of=_prices(problem))
    if options.objective == "fewest_nodes":
        return FewestNodes(demand_tokens_per_s=options.demand_tokens_per_s or 0.0)
    return Goal()


def _prices(problem: Problem) -> dict[str, float]:
    prices = {}
    for node in problem.cluster.nodes:
        price = problem.price_per_hour(node.name)
        if price is None:
            raise InvalidOptions(
                f"objective is 'cost' but node {node.name!r} has no price; give it or its "
                f"compute profile {node.compute_profile!r} a price_per_hour"
            )
        prices[node.name] = price
    return prices
