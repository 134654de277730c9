"""Dealing a cluster's nodes out to models: counts per kind of node, by an integer program.

Over the knapsack bound's work: node i does at most max_j j min(T_i(j), F) of the L F layer-tokens/s
that a flow F of its model takes. Bisection on the level finds the highest, which bounds every mix.
A deal may also keep the models to few regions each, where that costs little of the level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from planner.capacity import allowed_layers, throughput_tokens_per_s
from planner.domain.rules import PlacementRules
from planner.multi_model.shares import ModelShare, NoDealFound
from planner.placers.base import CancelToken
from planner.placers.solvers.base import LastSolution, MixedIntegerModel, SolveLimits, SolveOutcome
from planner.placers.solvers.choice import solve
from planner.tuning.served import DealTuning as tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Nodes of a region that are alike for every model."""

    region: str
    names: tuple[str, ...]


Counts: TypeAlias = tuple[tuple[int, ...], ...]
"""`counts[m][k]` nodes of kind k are for model m."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """No deal has a level above the bound."""

    counts: Counts
    level_tokens_per_s: float
    bound_tokens_per_s: float


def kinds_of(shares: tuple[ModelShare, ...]) -> list[Kind]:
    names_by_key: dict[tuple[str, ...], list[str]] = {}
    for node in shares[0].problem.cluster.nodes:
        profiles = [share.problem.cluster.node(node.name).compute_profile for share in shares]
        names_by_key.setdefault((node.region, *profiles), []).append(node.name)
    return [Kind(region=key[0], names=tuple(names)) for key, names in names_by_key.items()]


def highest_deal(
    shares: tuple[ModelShare, ...],
    kinds: Sequence[Kind],
    *,
    weights: Sequence[float],
    cancel: CancelToken,
) -> Deal:
    """The deal of the highest level, by bisection, or the highest so far. Raises NoDealFound."""
    high = min(
        sum(len(kind.names) * work_per_node(share, kind.names[0], flow=math.inf) for kind in kinds)
        / share.problem.model.num_layers
        / weight
        for share, weight in zip(shares, weights, strict=True)
    )
    bound = high
    low, (counts, _) = 0.0, _counts_for(shares, kinds, weights=weights, level=high * 1e-6)
    if counts is None:
        raise NoDealFound(
            "the cluster cannot hold all models at once: "
            + ", ".join(f"{s.problem.model.name} ({s.problem.model.num_layers})" for s in shares)
            + "; add nodes or take fewer models"
        )
    while high - low > tuned.BISECTION_RELATIVE_WIDTH * high and not cancel.is_cancelled():
        middle = (low + high) / 2
        found, is_impossible = _counts_for(shares, kinds, weights=weights, level=middle)
        if found is not None:
            low, counts = middle, found
            continue
        high = middle
        if is_impossible:
            bound = middle
    return Deal(counts=counts, level_tokens_per_s=low, bound_tokens_per_s=bound)


def gathered_deal(
    shares: tuple[ModelShare, ...],
    kinds: Sequence[Kind],
    *,
    weights: Sequence[float],
    level_tokens_per_s: float,
) -> Counts | None:
    """A deal of that level which gives every model nodes in few regions; None: none was found.

    minimise sum v_mr  s.t.  sum_m y_km <= n_k,  sum_k y_km c_km >= L_m w_m level,
    sum of y_km in region r <= (nodes of r) v_mr.
    """
    model = MixedIntegerModel()
    columns = _add_counts(model, kinds, num_models=len(shares))
    for share, weight, of_model in zip(shares, weights, columns, strict=True):
        works = _works_per_needed(share, kinds, flow=weight * level_tokens_per_s)
        model.add_at_most(
            [(-work, column) for work, column in zip(works, of_model, strict=True) if work > 0],
            -1.0,
        )
        for region in sorted({kind.region for kind in kinds}):
            visited = model.add_binary()
            model.objective[visited] = -1.0
            here = [position for position, kind in enumerate(kinds) if kind.region == region]
            nodes = sum(len(kinds[position].names) for position in here)
            terms = [(1.0, of_model[position]) for position in here]
            model.add_at_most([*terms, (-float(nodes), visited)], 0.0)
    watcher, _ = _solve(model)
    return _counts(watcher.values, columns) if watcher.values else None


def work_per_node(share: ModelShare, name: str, *, flow: float) -> float:
    """The most layer-tokens/s that a node does of a flow."""
    problem = share.problem
    return max(
        (
            layers * min(throughput_tokens_per_s(problem, name, layers), flow)
            for layers in range(1, allowed_layers(problem, name, PlacementRules()) + 1)
        ),
        default=0.0,
    )


def _counts_for(
    shares: tuple[ModelShare, ...],
    kinds: Sequence[Kind],
    *,
    weights: Sequence[float],
    level: float,
) -> tuple[Counts | None, bool]:
    """Counts that give every model the work of its flow at `level`, and whether none can.

    maximise t <= 1  s.t.  sum_m y_km <= n_k,  t <= sum_k y_km c_km / (L_m w_m level)  for all m.
    """
    model = MixedIntegerModel()
    columns = _add_counts(model, kinds, num_models=len(shares))
    served = model.add_real(upper=1.0, objective=1.0)
    for share, weight, of_model in zip(shares, weights, columns, strict=True):
        works = _works_per_needed(share, kinds, flow=weight * level)
        terms = [(-work, column) for work, column in zip(works, of_model, strict=True) if work > 0]
        model.add_at_most([(1.0, served), *terms], 0.0)
    watcher, outcome = _solve(model)
    if not watcher.values or watcher.values[served] < 1 - 1e-6:
        return None, outcome.upper_bound < 1 - 1e-6
    return _counts(watcher.values, columns), False


def _add_counts(
    model: MixedIntegerModel, kinds: Sequence[Kind], *, num_models: int
) -> list[list[int]]:
    """y_km as columns by model and kind, no more of a kind than there are."""
    columns = [
        [model.add_integer(upper=len(kind.names)) for kind in kinds] for _ in range(num_models)
    ]
    for position, kind in enumerate(kinds):
        model.add_at_most([(1.0, of_model[position]) for of_model in columns], len(kind.names))
    return columns


def _works_per_needed(share: ModelShare, kinds: Sequence[Kind], *, flow: float) -> list[float]:
    """Share of the flow's work that a node of each kind does."""
    needed = share.problem.model.num_layers * flow
    return [work_per_node(share, kind.names[0], flow=flow) / needed for kind in kinds]


def _solve(model: MixedIntegerModel) -> tuple[LastSolution, SolveOutcome]:
    watcher = LastSolution()
    outcome = solve(
        "highs",
        model,
        limits=SolveLimits(
            time_limit_s=tuned.DEAL_S, relative_gap=1e-6, seed=0, node_limit=tuned.NODE_LIMIT
        ),
        watcher=watcher,
    )
    return watcher, outcome


def _counts(values: Sequence[float], columns: list[list[int]]) -> Counts:
    return tuple(tuple(round(values[column]) for column in of_model) for of_model in columns)
