"""Placements that survive the loss of any one node: the N-1 flow, its bound and a search for it.

The N-1 flow of a placement is the least max flow that is left when one node fails and all others
keep their layers. Where links do not bind it is the least, over layers, of the speed of the nodes
that hold the layer without the fastest of them: the search anneals that, and counts exact flows.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.capacity import allowed_layers, throughput_tokens_per_s
from planner.compute_plan import BASELINES, NoPlacementFound, PlanOptions, compute_plan
from planner.domain.flow import Flow
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import check_rules, conform, restricted_problem
from planner.flow_check import check_flow
from planner.max_flow import max_flow
from planner.placers.base import CancelToken
from planner.placers.flow_meter import FlowMeter

_PLAIN_SEARCH_SHARE = 0.3
_MOVES = 20_000
_ROUNDS = 40
_STEP = 1.15
_LEAST_STEP = 1.002
_HOTNESS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """The flow that is left when the worst node is lost; "" if every single loss costs nothing."""

    flow_tokens_per_s: float
    worst_node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustPlan:
    """A placement with its max flow, what of it survives, and a bound on what any one's can."""

    placement: Placement
    flow: Flow
    survival: Survival
    survival_bound_tokens_per_s: float


def survival(problem: Problem, placement: Placement, *, options: PlanOptions) -> Survival:
    """The exact N-1 flow.

    What a node carries of one max flow is the most that its loss can take, so losses are tried by
    what they threaten until the rest cannot be worse. (Not with a hop limit: there a loss may let
    other connections in, and all are tried.)
    """
    whole = _flow(problem, placement, options=options)
    at_least = {
        name: whole.value_tokens_per_s - whole.nodes[name].flow_tokens_per_s
        if options.rules.max_hops is None
        else 0.0
        for name in placement.layers
    }
    worst = Survival(flow_tokens_per_s=whole.value_tokens_per_s, worst_node="")
    meter = FlowMeter(problem, options.search_options(time_limit_s=options.time_limit_s))
    of_class = _like_nodes(problem, placement)
    lost_before: set[tuple[object, ...]] = set()
    for name in sorted(at_least, key=lambda lost: (at_least[lost], lost)):
        if worst.flow_tokens_per_s <= at_least[name]:
            break
        if of_class[name] in lost_before:
            continue
        lost_before.add(of_class[name])
        left = Placement(
            layers={n: held for n, held in placement.layers.items() if n != name},
            components=tuple(rest for group in placement.components if (rest := group - {name})),
        )
        flow = meter.tokens_per_s(left)
        if flow < worst.flow_tokens_per_s:
            worst = Survival(flow_tokens_per_s=flow, worst_node=name)
    return worst


def _like_nodes(problem: Problem, placement: Placement) -> dict[str, tuple[object, ...]]:
    """What makes the loss of one node as bad as that of another, by node."""
    cluster = problem.cluster
    apart = {end for link in cluster.links for end in (link.source, link.target)}
    apart |= {member for shared in cluster.shared for member in shared.members}
    return {
        name: (
            held.first,
            held.end,
            cluster.node(name).compute_profile,
            cluster.region_of(name),
            placement.component_of(name),
            name if name in apart else "",
        )
        for name, held in placement.layers.items()
    }


def survival_bound_tokens_per_s(problem: Problem) -> float:
    """No placement's N-1 flow exceeds the knapsack bound of the cluster without any one node."""
    if len(problem.cluster.nodes) == 1:
        return 0.0
    one_of_each = {node.compute_profile: node.name for node in problem.cluster.nodes}
    return min(
        knapsack_bound_tokens_per_s(replace(problem, cluster=problem.cluster.without({name})))
        for name in one_of_each.values()
    )


def compute_robust_plan(
    problem: Problem,
    *,
    options: PlanOptions,
    start: Placement | None = None,
    cancel: CancelToken,
    clock: Callable[[], float] = time.monotonic,
) -> RobustPlan:
    """The placement with the best N-1 flow found in time; among equals the one with more flow.

    It begins with the best placement for plain flow, the baselines and `start`. A search that the
    clock does not end gives the same answer again. Raises as `compute_plan` does.
    """
    started_s = clock()
    check_rules(problem, options.rules)
    problem = restricted_problem(problem, options.rules)
    options = replace(options, rules=options.rules.once_restricted)
    plain = compute_plan(
        problem,
        options=replace(options.for_flow, time_limit_s=options.time_limit_s * _PLAIN_SEARCH_SHARE),
        progress=lambda _: None,
        cancel=cancel,
        start=start,
    )
    candidates = [plain.placement, *((start,) if start is not None else ())]
    candidates += [placed for place in BASELINES.values() if (placed := place(problem)) is not None]
    best = max(
        (
            _plan(problem, conform(problem, placed, options.rules), options=options)
            for placed in candidates
        ),
        key=_merit,
    )
    bound = best.survival_bound_tokens_per_s
    step = _STEP
    for number in range(_ROUNDS):
        late = clock() - started_s >= options.time_limit_s or cancel.is_cancelled()
        if late or best.survival.flow_tokens_per_s >= bound * (1 - options.relative_gap):
            break
        reached = best.survival.flow_tokens_per_s
        found = anneal_survival(
            problem,
            best.placement,
            target_tokens_per_s=reached * step if reached > 0 else bound / 2,
            rules=options.rules,
            moves=_MOVES,
            seed=options.seed + number,
        )
        better = _plan(problem, found, options=options)
        if _merit(better) > _merit(best):
            best = better
        elif step < _LEAST_STEP:
            break
        else:
            step = 1 + (step - 1) * 0.8
    check_flow(best.flow, problem=problem)
    if best.flow.value_tokens_per_s <= 0:
        raise NoPlacementFound("no placement that carries any flow was found; give it more time")
    return best


def anneal_survival(
    problem: Problem,
    start: Placement,
    *,
    target_tokens_per_s: float,
    rules: PlacementRules,
    moves: int,
    seed: int,
) -> Placement:
    """The best placement met while every layer shall have the target without its fastest node.

    Energy: what the layers lack, together. Threshold accepting on changes of one node's range.
    """
    chance = random.Random(seed)  # noqa: S311 - a search, not a secret
    num_layers = problem.model.num_layers
    names = [
        node.name
        for node in problem.cluster.nodes
        if node.name not in rules.pinned and allowed_layers(problem, node.name, rules) > 0
    ]
    held_by_layer: list[dict[str, float]] = [{} for _ in range(num_layers)]
    ranges: dict[str, LayerRange] = dict(start.layers)
    for name, held in ranges.items():
        for layer in range(held.first, held.end):
            held_by_layer[layer][name] = throughput_tokens_per_s(problem, name, len(held))

    def lack(layer: int) -> float:
        speeds = held_by_layer[layer].values()
        return max(0.0, target_tokens_per_s - (sum(speeds) - max(speeds, default=0.0)))

    lacks = [lack(layer) for layer in range(num_layers)]
    energy = least = sum(lacks)
    best = dict(ranges)
    for move in range(moves if names else 0):
        if least <= 0:
            break
        name = chance.choice(names)
        before = ranges.get(name)
        after = _other_range(
            before, limit=allowed_layers(problem, name, rules), lacks=lacks, chance=chance
        )
        if after == before:
            continue
        touched = {
            layer for held in (before, after) if held for layer in range(held.first, held.end)
        }
        _hold(held_by_layer, name, before, None, 0.0)
        _hold(held_by_layer, name, None, after, throughput_tokens_per_s(problem, name, len(after)))
        change = sum(lack(layer) - lacks[layer] for layer in touched)
        room = _HOTNESS * target_tokens_per_s * (1 - move / moves) * chance.random()
        if change > room:
            _hold(held_by_layer, name, after, None, 0.0)
            if before is not None:
                speed = throughput_tokens_per_s(problem, name, len(before))
                _hold(held_by_layer, name, None, before, speed)
            continue
        ranges[name] = after
        for layer in touched:
            lacks[layer] = lack(layer)
        energy += change
        if energy < least:
            least, best = energy, dict(ranges)
    return Placement(layers=best)


def _other_range(
    before: LayerRange | None, *, limit: int, lacks: list[float], chance: random.Random
) -> LayerRange:
    num_layers = len(lacks)
    if before is not None and chance.random() < 0.5:
        first = before.first + chance.choice((-1, 0, 1))
        end = before.end + chance.choice((-1, 0, 1))
    else:
        layer = max(chance.sample(range(num_layers), min(3, num_layers)), key=lacks.__getitem__)
        length = chance.randint(1, limit)
        first = layer - chance.randrange(length)
        end = first + length
    first = min(max(first, 0), num_layers - 1)
    return LayerRange(first=first, end=max(first + 1, min(end, num_layers, first + limit)))


def _hold(
    held_by_layer: list[dict[str, float]],
    name: str,
    before: LayerRange | None,
    after: LayerRange | None,
    speed: float,
) -> None:
    for layer in range(before.first, before.end) if before is not None else ():
        del held_by_layer[layer][name]
    for layer in range(after.first, after.end) if after is not None else ():
        held_by_layer[layer][name] = speed


def _plan(problem: Problem, placement: Placement, *, options: PlanOptions) -> RobustPlan:
    return RobustPlan(
        placement=placement,
        flow=_flow(problem, placement, options=options),
        survival=survival(problem, placement, options=options),
        survival_bound_tokens_per_s=survival_bound_tokens_per_s(problem),
    )


def _merit(plan: RobustPlan) -> tuple[float, float]:
    return plan.survival.flow_tokens_per_s, plan.flow.value_tokens_per_s


def _flow(problem: Problem, placement: Placement, *, options: PlanOptions) -> Flow:
    return max_flow(
        problem,
        placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
    )
