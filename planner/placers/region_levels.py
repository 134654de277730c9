"""Groups of nodes in levels, where all that leaves or enters a group shares one bandwidth.

Each group (region) works as one large node that holds a contiguous part of the model: the groups of
a *level* hold the same layers side by side, and every token passes all levels. So a group sends
each token out once at most, and what it may send or receive caps its flow, not its links one by
one. Which groups make up which level is searched with an estimate of what a group's nodes carry
over j layers; the best few orders of levels get stages, group by group, from the pattern program.
"""

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from planner.bounds.group_bandwidth import GroupBandwidth, group_bandwidths
from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.link_groups import LinkTable, link_groups
from planner.bounds.node_kinds import NodeKind
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.link_matrix import Floats
from planner.placers.base import SearchOptions, StopReason
from planner.placers.board import Board
from planner.placers.pattern_search import improving_stages
from planner.placers.stage_patterns import aligned_stages, free_kinds
from planner.placers.stop import ProgramLimits
from planner.tuning.flow import RegionLevelsTuning as tuned

NAME = "region-levels"

Levels = tuple[int, ...]
"""The level of every group, counted from 0 without gaps."""
CarryingStages = Callable[[int, int, float], tuple[float, Placement | None]]
"""From a group's number, its layers and the flow that is enough to the flow, cut at that, and the
placement, counted from the part's first layer."""


def search_region_levels(board: Board, seed: int) -> StopReason:
    """Place each level's groups as if they were large nodes.

    Finds nothing where there is one group only, or no group shares its way out or in.
    """
    problem, stop = board.problem, board.stop
    upper = knapsack_bound_tokens_per_s(problem)
    group_of = link_groups(problem, LinkTable(problem))
    members = problem.cluster.names_by(lambda node: group_of[node.name])
    bandwidths = group_bandwidths(problem, members)
    if len(members) < 2 or upper <= 0 or not any(map(_is_finite, bandwidths.values())):
        return "heuristic"
    groups = _groups(problem, board.options, members, bandwidths, bound_tokens_per_s=upper)
    carry = _stages_of(groups, board.program_limits(seed))
    tables = np.array([group.tokens_per_s for group in groups])
    for levels in _best_orders(groups, tables, seed=seed, is_over=stop.is_over):
        for placement in _placements(groups, tables, levels, carry):
            board.offer_free(placement, by=NAME)
            if stop.is_over():
                break
    return "heuristic"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A group's free nodes, an estimate of what they carry over j layers, and its bandwidth."""

    kinds: list[NodeKind]
    tokens_per_s: Floats
    bandwidth: GroupBandwidth

    def cap(self, level: int, num_levels: int) -> float:
        """Its capacity in that level; the first and the last level meet only the coordinator."""
        entering = self.bandwidth.ingress_tokens_per_s if level > 0 else math.inf
        leaving = self.bandwidth.egress_tokens_per_s if level + 1 < num_levels else math.inf
        return min(entering, leaving)


def _is_finite(bandwidth: GroupBandwidth) -> bool:
    return min(bandwidth.egress_tokens_per_s, bandwidth.ingress_tokens_per_s) < math.inf


def _groups(
    problem: Problem,
    options: SearchOptions,
    members: dict[str, list[str]],
    bandwidths: dict[str, GroupBandwidth],
    *,
    bound_tokens_per_s: float,
) -> list[_Group]:
    groups = []
    for name in sorted(members):
        kinds = free_kinds(problem.only(members[name]), options)
        groups.append(
            _Group(
                kinds=kinds,
                tokens_per_s=_estimate(
                    kinds,
                    num_layers=problem.model.num_layers,
                    most_tokens_per_s=bound_tokens_per_s,
                ),
                bandwidth=bandwidths[name],
            )
        )
    return groups


def _estimate(kinds: list[NodeKind], *, num_layers: int, most_tokens_per_s: float) -> Floats:
    """[j]: what the nodes carry over j layers, in stages of one kind each; [0] is never asked for.

    At a flow f a stage of m nodes that hold j layers, m * T_j >= f, has j / m layers a node.
    """
    carried = np.zeros(num_layers + 1)
    for flow in np.geomspace(
        most_tokens_per_s * tuned.LEAST_SHARE, most_tokens_per_s, tuned.FLOWS_TABLED
    ):
        layers = sum(
            kind.count
            * max(
                held / math.ceil(flow / speed) if math.ceil(flow / speed) <= kind.count else 0.0
                for held, speed in kind.tokens_per_s.items()
            )
            for kind in kinds
        )
        carried[: min(num_layers, int(layers)) + 1] = flow
    return carried


def _best_orders(
    groups: list[_Group], tables: Floats, *, seed: int, is_over: Callable[[], bool]
) -> list[Levels]:
    """The most promising levels of every group, best first: all tried, or annealed over."""
    worth: dict[Levels, float] = {}

    def value(levels: Levels) -> float:
        if levels not in worth:
            worth[levels] = _flow_and_lengths(groups, tables, levels)[0]
        return worth[levels]

    if len(groups) <= tuned.MOST_ENUMERATED:
        for drawn in itertools.product(range(len(groups)), repeat=len(groups)):
            value(_without_gaps(drawn))
    else:
        anneal_levels(len(groups), value, seed=seed, is_over=is_over)
    best_first = sorted(worth, key=lambda levels: (-worth[levels], levels))
    return [levels for levels in best_first[: tuned.ORDERS_PLACED] if worth[levels] > 0]


def anneal_levels(
    num_groups: int,
    value: Callable[[Levels], float],
    *,
    seed: int,
    is_over: Callable[[], bool],
) -> None:
    """Threshold accepting over changes of one group's level; `value` remembers what it saw.

    A value below 0, of levels that cannot hold the model, may become worse by the same share.
    """
    chance = random.Random(seed)  # noqa: S311 - a search, not a secret
    levels = tuple(range(num_groups))
    here = value(levels)
    for move in range(tuned.MOVES):
        if is_over():
            break
        changed = list(levels)
        group = chance.randrange(num_groups)
        if chance.random() < 0.5:
            other = chance.randrange(num_groups)
            changed[group], changed[other] = changed[other], changed[group]
        elif chance.random() < 0.7:
            changed[group] = changed[chance.randrange(num_groups)]
        else:
            after = chance.randrange(-1, num_groups)
            changed = [level + (level > after) for level in changed]
            changed[group] = after + 1
        proposed = _without_gaps(tuple(changed))
        there = value(proposed)
        heat = tuned.HOT * (tuned.COLD / tuned.HOT) ** (move / tuned.MOVES)
        if there >= here - heat * chance.random() * abs(here):
            levels, here = proposed, there


def _without_gaps(levels: tuple[int, ...]) -> Levels:
    rank = {level: number for number, level in enumerate(sorted(set(levels)))}
    return tuple(rank[level] for level in levels)


def _flow_and_lengths(
    groups: list[_Group], tables: Floats, levels: Levels
) -> tuple[float, list[int]]:
    """The most that such levels carry, as estimated, and how many layers each has.

    Below 0 where they cannot hold the model: the layers that are missing, for the search.
    """
    num_layers = tables.shape[1] - 1
    num_levels = max(levels) + 1
    carried = np.zeros((num_levels, num_layers + 1))
    for group, level in enumerate(levels):
        carried[level] += np.minimum(tables[group], groups[group].cap(level, num_levels))

    def lengths(flow: float) -> list[int]:
        return [int(np.count_nonzero(row[1:] >= flow)) for row in carried]

    missing = num_layers - int(np.count_nonzero(carried[:, 1:]))
    if missing > 0:
        return -float(missing), []
    flows = np.unique(carried[:, 1:][carried[:, 1:] > 0])
    low, high = 0, len(flows) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if sum(lengths(flows[middle])) >= num_layers:
            low = middle
        else:
            high = middle - 1
    flow = float(flows[low])
    held = lengths(flow)
    for _ in range(sum(held) - num_layers):
        longest = max(range(num_levels), key=lambda level: held[level] / carried[level, 1])
        held[longest] -= 1
    return flow, held


def _stages_of(groups: list[_Group], limits: ProgramLimits) -> CarryingStages:
    """Stages for a group's part of the model, by the pattern program; each is searched once."""

    @functools.cache
    def carry(group: int, layers: int, enough: float) -> tuple[float, Placement | None]:
        program = aligned_stages(groups[group].kinds, num_layers=layers)
        flow, placement = 0.0, None
        for found in improving_stages(
            program, above=0.0, below=enough * tuned.AMPLE, limits=limits
        ):
            flow, placement = found.tokens_per_s, program.placement(found)
            if flow >= enough:
                break
        return min(flow, enough), placement

    return carry


def _placements(
    groups: list[_Group], tables: Floats, levels: Levels, carry: CarryingStages
) -> Iterator[Placement]:
    """Placements of such levels; again and again the slowest gives a layer to the fastest."""
    target, lengths = _flow_and_lengths(groups, tables, levels)
    num_levels = len(lengths)
    tried: set[tuple[int, ...]] = set()
    for _ in range(tuned.SHIFTS):
        if tuple(lengths) in tried or min(lengths) < 1:
            return
        tried.add(tuple(lengths))
        carried = [0.0] * num_levels
        layers: dict[str, LayerRange] = {}
        for group, level in enumerate(levels):
            first = sum(lengths[:level])
            cap = groups[group].cap(level, num_levels)
            enough = min(cap, 2 * target)
            flow, part = carry(group, lengths[level], enough)
            carried[level] += flow
            if part is not None:
                layers |= {
                    name: LayerRange(first=first + held.first, end=first + held.end)
                    for name, held in part.layers.items()
                }
        yield Placement(layers=layers)
        slowest = min(range(num_levels), key=carried.__getitem__)
        fastest = max(range(num_levels), key=carried.__getitem__)
        if slowest == fastest:
            return
        lengths = list(lengths)
        lengths[slowest] -= 1
        lengths[fastest] += 1
