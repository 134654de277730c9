"""Several models on one cluster: which nodes serve which, and each one's plan.

A node holds layers of one model only. Model m of weight w_m shall have a flow of w_m x for the
largest x, the level of the mix. Nodes are dealt out in counts per kind by an integer program over
the knapsack bound's work: node i does at most max_j j min(T_i(j), F) of the L F layer-tokens/s
that a flow F of its model takes. Bisection on x finds the largest possible level, which bounds
every mix. Then each model is planned on its nodes; a model that falls behind its share of the bound
is dealt more in the next round.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.capacity import ModelDoesNotFit, allowed_layers, throughput_tokens_per_s
from planner.compute_plan import NoPlacementFound, PlanOptions, compute_plan
from planner.domain.errors import InvalidProblem
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import restricted_problem
from planner.placers.base import CancelToken
from planner.placers.solvers.base import MixedIntegerModel, SolveLimits
from planner.placers.solvers.highs import HighsSolver

_ROUNDS = 6
_BISECTION_RELATIVE_WIDTH = 1e-3
_DEAL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShare:
    """One model of the mix: its problem on the common cluster, and its weight."""

    problem: Problem
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise InvalidProblem(
                f"the weight of {self.problem.model.name!r} is {self.weight}; it must be above 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMix:
    """A plan for each model, in order; no two use a node.

    `level_tokens_per_s` is the least flow / weight, `level_bound_tokens_per_s` what none exceeds.
    """

    plans: tuple[Plan, ...]
    level_tokens_per_s: float
    level_bound_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Nodes that are alike for every model."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deal:
    """Counts of each kind for each model, and the level that no deal can exceed."""

    counts: tuple[tuple[int, ...], ...]
    bound_tokens_per_s: float


class NoDealFound(NoPlacementFound):
    """No way to give every model nodes that can hold it."""


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
    hold for every model. Raises InvalidProblem, NoDealFound, ModelDoesNotFit, NoPlacementFound.
    """
    _check_shares(shares, options.rules)
    started_s = clock()
    shares = tuple(
        replace(share, problem=restricted_problem(share.problem, options.rules)) for share in shares
    )
    options = replace(options, rules=options.rules.once_restricted)
    kinds = _kinds(shares)
    weights = [share.weight for share in shares]
    best: ModelMix | None = None
    bound = float("inf")
    for number in range(_ROUNDS):
        left_s = options.time_limit_s - (clock() - started_s)
        if best is not None and (left_s <= 0 or cancel.is_cancelled()):
            break
        try:
            deal = _deal(shares, kinds, weights=weights)
            if number == 0:
                bound = deal.bound_tokens_per_s
            seconds = max(left_s, 0.1 * options.time_limit_s) / (_ROUNDS - number) / len(shares)
            plans = _plans(shares, kinds, deal, options=options, seconds=seconds, cancel=cancel)
        except (NoPlacementFound, ModelDoesNotFit):
            if best is None:
                raise
            break
        levels = [
            plan.flow.value_tokens_per_s / share.weight
            for plan, share in zip(plans, shares, strict=True)
        ]
        if best is None or min(levels) > best.level_tokens_per_s:
            best = ModelMix(
                plans=plans, level_tokens_per_s=min(levels), level_bound_tokens_per_s=bound
            )
        mean = sum(levels) / len(levels)
        weights = [
            weight * mean / max(level, 0.1 * mean)
            for weight, level in zip(weights, levels, strict=True)
        ]
    if best is None:
        raise NoDealFound("the time ended before any model had a plan; give more time")
    return best


def level_bound_tokens_per_s(shares: tuple[ModelShare, ...]) -> float:
    """No mix of these models, with whatever placements, has a higher level."""
    kinds = _kinds(shares)
    return _deal(shares, kinds, weights=[share.weight for share in shares]).bound_tokens_per_s


def _check_shares(shares: tuple[ModelShare, ...], rules: PlacementRules) -> None:
    if not shares:
        raise InvalidProblem("there is no model to place; name at least one problem")
    if rules.pinned:
        raise InvalidProblem(
            f"node {min(rules.pinned)!r} is pinned, but several models share the cluster; "
            "pins work for one model only"
        )
    first = {node.name: node.region for node in shares[0].problem.cluster.nodes}
    for share in shares[1:]:
        nodes = {node.name: node.region for node in share.problem.cluster.nodes}
        if nodes != first:
            different = min(set(nodes.items()) ^ set(first.items()))[0]
            raise InvalidProblem(
                f"problems {shares[0].problem.name!r} and {share.problem.name!r} differ in node "
                f"{different!r}; several models are planned on one cluster"
            )


def _kinds(shares: tuple[ModelShare, ...]) -> list[_Kind]:
    names_by_key: dict[tuple[str, ...], list[str]] = {}
    for node in shares[0].problem.cluster.nodes:
        profiles = [share.problem.cluster.node(node.name).compute_profile for share in shares]
        names_by_key.setdefault((node.region, *profiles), []).append(node.name)
    return [_Kind(names=tuple(names)) for names in names_by_key.values()]


def _deal(
    shares: tuple[ModelShare, ...], kinds: Sequence[_Kind], *, weights: Sequence[float]
) -> _Deal:
    """The deal of the highest level, by bisection. Raises NoDealFound."""
    high = min(
        _work(share, kinds, flow=float("inf"), counts=[len(kind.names) for kind in kinds])
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
    while high - low > _BISECTION_RELATIVE_WIDTH * high:
        middle = (low + high) / 2
        found, is_impossible = _counts_for(shares, kinds, weights=weights, level=middle)
        if found is not None:
            low, counts = middle, found
            continue
        high = middle
        if is_impossible:
            bound = middle
    return _Deal(counts=counts, bound_tokens_per_s=bound)


def _work_per_node(share: ModelShare, name: str, *, flow: float) -> float:
    """The most layer-tokens/s that a node does of a flow."""
    problem = share.problem
    return max(
        (
            layers * min(throughput_tokens_per_s(problem, name, layers), flow)
            for layers in range(1, allowed_layers(problem, name, PlacementRules()) + 1)
        ),
        default=0.0,
    )


def _work(
    share: ModelShare, kinds: Sequence[_Kind], *, flow: float, counts: Sequence[int]
) -> float:
    return sum(
        count * _work_per_node(share, kind.names[0], flow=flow)
        for kind, count in zip(kinds, counts, strict=True)
    )


class _LastSolution:
    """Keeps the last solution that a solver reports."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_solution(self, values: Sequence[float]) -> None:
        self.values = list(values)

    def on_bound(self, upper_bound: float) -> None:
        """Bounds are read at the end."""

    def should_stop(self) -> bool:
        return False


def _counts_for(
    shares: tuple[ModelShare, ...],
    kinds: Sequence[_Kind],
    *,
    weights: Sequence[float],
    level: float,
) -> tuple[tuple[tuple[int, ...], ...] | None, bool]:
    """Counts that give every model the work of its flow at `level`, and whether none can.

    maximise t <= 1  s.t.  sum_m y_km <= n_k,  t <= sum_k y_km c_km / (L_m w_m level)  for all m.
    """
    model = MixedIntegerModel()
    columns = [[model.add_integer(upper=len(kind.names)) for kind in kinds] for _ in shares]
    served = model.add_real(upper=1.0, objective=1.0)
    for position, kind in enumerate(kinds):
        model.add_at_most([(1.0, of_model[position]) for of_model in columns], len(kind.names))
    for share, weight, of_model in zip(shares, weights, columns, strict=True):
        flow = weight * level
        needed = share.problem.model.num_layers * flow
        terms = [(1.0, served)]
        for column, kind in zip(of_model, kinds, strict=True):
            work = _work_per_node(share, kind.names[0], flow=flow)
            if work > 0:
                terms.append((-work / needed, column))
        model.add_at_most(terms, 0.0)
    watcher = _LastSolution()
    outcome = HighsSolver().solve(
        model,
        start=None,
        limits=SolveLimits(time_limit_s=_DEAL_S, relative_gap=1e-6, seed=0),
        watcher=watcher,
    )
    if not watcher.values or watcher.values[served] < 1 - 1e-6:
        return None, outcome.upper_bound < 1 - 1e-6
    return tuple(tuple(round(watcher.values[c]) for c in of_model) for of_model in columns), False


def _plans(
    shares: tuple[ModelShare, ...],
    kinds: Sequence[_Kind],
    deal: _Deal,
    *,
    options: PlanOptions,
    seconds: float,
    cancel: CancelToken,
) -> tuple[Plan, ...]:
    nodes = _nodes_of_models(kinds, deal, num_models=len(shares))
    plans = []
    for share, own in zip(shares, nodes, strict=True):
        others = {node.name for node in share.problem.cluster.nodes} - own
        problem = replace(share.problem, cluster=share.problem.cluster.without(others))
        plans.append(
            compute_plan(
                problem,
                options=replace(options.for_flow, time_limit_s=seconds),
                progress=lambda _: None,
                cancel=cancel,
            )
        )
    return tuple(plans)


def _nodes_of_models(kinds: Sequence[_Kind], deal: _Deal, *, num_models: int) -> list[set[str]]:
    """Each kind's nodes in order: the first model's first; who is left over goes to the last."""
    nodes: list[set[str]] = [set() for _ in range(num_models)]
    for position, kind in enumerate(kinds):
        given = 0
        for number in range(num_models):
            count = deal.counts[number][position]
            nodes[number].update(kind.names[given : given + count])
            given += count
        nodes[-1].update(kind.names[given:])
    return nodes
