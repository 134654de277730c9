"""The use case: several models and one cluster -> which nodes serve which, and each one's plan.

A node holds layers of one model only. Model m of weight w_m gets a flow, or serves, w_m x for the
largest x that is found, the level of the mix. Nodes are dealt out by flow, plans and exchanges
judged by the objective.

1. Deal nodes out in counts per kind (`deal.py`), plan each model on its nodes, and deal again: more
   to a model that fell behind its share, or each model to fewer regions.
2. Exchange nodes between the models of the best mix while that raises its level (`exchange.py`).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.domain.errors import PlannerError
from planner.feasibility import restricted_problem
from planner.multi_model.deal import Counts, Deal, Kind, gathered_deal, highest_deal, kinds_of
from planner.multi_model.dealt import Dealt, nodes_of_models, planned
from planner.multi_model.exchange import exchange_nodes
from planner.multi_model.shares import NOT_PLANNED, ModelMix, ModelShare, NoDealFound, check_shares
from planner.placers.base import CancelToken
from planner.placers.stop import Stop
from planner.plan_options import PlanOptions
from planner.tuning.served import MixTuning as tuned


def plan_models(
    shares: tuple[ModelShare, ...],
    *,
    options: PlanOptions,
    cancel: CancelToken,
    clock: Callable[[], float] = time.monotonic,
) -> ModelMix:
    """The mix with the highest level found within `options.time_limit_s`.

    All problems have the same nodes in the same regions; a node's profile may differ, since its
    speed depends on the model. Pins are refused (which model would they be of?); the other rules
    hold for every model. Raises InvalidProblem, InvalidOptions, NoDealFound, ModelDoesNotFit,
    NoPlacementFound, LimitsNotKept.
    """
    check_shares(shares, options)
    stop = Stop(time_limit_s=options.time_limit_s, cancel=cancel, clock=clock)
    dealing = stop.until(tuned.DEALS_SHARE_OF_TIME * options.time_limit_s)
    shares = tuple(
        replace(share, problem=restricted_problem(share.problem, options.rules)) for share in shares
    )
    options = replace(options, rules=options.rules.once_restricted)
    kinds = kinds_of(shares)
    highest = highest_deal(shares, kinds, weights=[share.weight for share in shares], cancel=stop)
    bound = highest.bound_tokens_per_s if options.objective == "flow" else None
    best = _best_of_deals(shares, kinds, highest, options=options, stop=dealing)
    enough = math.inf if bound is None else bound * (1 - options.relative_gap)
    if best.level_tokens_per_s < enough:
        best = exchange_nodes(kinds, best, options=options, stop=stop, enough_tokens_per_s=enough)
    return ModelMix(
        plans=best.plans,
        level_tokens_per_s=best.level_tokens_per_s,
        level_bound_tokens_per_s=bound,
    )


def _best_of_deals(
    shares: tuple[ModelShare, ...],
    kinds: Sequence[Kind],
    highest: Deal,
    *,
    options: PlanOptions,
    stop: Stop,
) -> Dealt:
    """Each round's deal follows from how the models did in the rounds before.

    One round only once the time for deals is over or the search is cancelled.
    """
    weights = [share.weight for share in shares]
    best: Dealt | None = None
    failure: PlannerError | None = None
    for number, regions_may_cost in enumerate(tuned.REGIONS_MAY_COST):
        if number > 0:
            if stop.is_over():
                break
            try:
                highest = highest_deal(shares, kinds, weights=weights, cancel=stop)
            except NoDealFound:
                break
        counts = _counts_of_round(shares, kinds, highest, weights, regions_may_cost)
        if counts is None:
            continue
        try:
            dealt = planned(
                shares,
                nodes_of_models(kinds, counts),
                options=options,
                seconds=max(stop.left_s, tuned.LEAST_SHARE_OF_TIME * options.time_limit_s)
                / (len(tuned.REGIONS_MAY_COST) - number)
                / len(shares),
                cancel=stop,
            )
        except NOT_PLANNED as error:
            failure = error
            continue
        if best is None or dealt.level_tokens_per_s > best.level_tokens_per_s:
            best = dealt
        levels = dealt.levels_tokens_per_s
        mean = sum(levels) / len(levels)
        weights = [
            weight * mean / max(level, tuned.LEAST_LEVEL_SHARE * mean)
            for weight, level in zip(weights, levels, strict=True)
        ]
    if best is None:
        raise failure or NoDealFound("the time ended before any model had a plan; give more time")
    return best


def _counts_of_round(
    shares: tuple[ModelShare, ...],
    kinds: Sequence[Kind],
    highest: Deal,
    weights: list[float],
    regions_may_cost: float | None,
) -> Counts | None:
    """The highest deal's, or of one to few regions; None if no such deal is found."""
    if regions_may_cost is None or len({kind.region for kind in kinds}) == 1:
        return highest.counts
    level = (1 - regions_may_cost) * highest.level_tokens_per_s
    return gathered_deal(shares, kinds, weights=weights, level_tokens_per_s=level)
