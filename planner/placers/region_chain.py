"""Aligned stages over slow links: wide stages of any nodes, and chains of regions.

Two programs over the same patterns as `stage_patterns`, for clusters whose links between groups of
nodes (regions) are slow.

* *Wide stages*: every stage counts its nodes by what slow links pass on, wherever the nodes are.
* *Region chain*: every stage lies in one group; the groups follow each other. Where one ends and
  the next begins, either both stages are even, that is wide (exponent 1/2), or one is one-sided, as
  wide as single links demand (exponent 1), and the other need not be wide at all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, permutations, product

import numpy as np

from planner.bounds.link_groups import LinkTable, link_groups
from planner.domain.problem import Problem
from planner.placers.base import SearchOptions, StopReason
from planner.placers.board import Board
from planner.placers.pattern_search import PatternProgram, search_by_patterns
from planner.placers.patterns import (
    ExtraColumn,
    PatternFamily,
    PatternPool,
    StageNodes,
)
from planner.placers.stage_patterns import free_kinds
from planner.tuning.flow import RegionChainTuning as tuned

NAME = "region-chain"


def search_region_chains(board: Board, seed: int) -> StopReason:
    """Place wide stages, then chains of regions. Finds nothing where all links are alike."""
    return search_by_patterns(
        board, lambda: _programs(board.problem, board.options), seed=seed, by=NAME
    )


def _programs(problem: Problem, options: SearchOptions) -> Iterator[PatternProgram]:
    """None where all links are alike."""
    links = LinkTable(problem)
    groups = link_groups(problem, links)
    slow = _slow_link_tokens_per_s(links, groups)
    if slow is not None and slow > 0:
        yield _wide_stages(problem, options, slow)
        yield _region_chain(problem, options, slow, groups)


def _wide_stages(problem: Problem, options: SearchOptions, slow: float) -> PatternProgram:
    """The program of wide stages, of nodes from anywhere; narrower ones between wider ones.

    Stages of exponent e and 1 - e pass a flow on to each other, so narrower stages (e < 1/2) are
    placed alternately with wider ones. One row for each narrower exponent n:

        stages of exponent <= n  <=  stages of exponent >= 1 - n
    """
    kinds, families = free_kinds(problem, options), []
    for exponent in (*tuned.NARROWER, tuned.EVEN, *(1 - narrower for narrower in tuned.NARROWER)):
        use: dict[int, float] = {}
        for row, narrower in enumerate(tuned.NARROWER, start=len(kinds)):
            if exponent <= narrower:
                use[row] = 1.0
            elif exponent >= 1 - narrower:
                use[row] = -1.0
        families.append(
            PatternFamily(
                kinds=tuple(range(len(kinds))),
                link_tokens_per_s=slow,
                width_exponent=exponent,
                use_of_rows=use,
            )
        )
    pool = PatternPool(
        kinds,
        families,
        extra_limits=[0.0] * len(tuned.NARROWER),
        max_stages=options.rules.max_hops,
    )

    def alternating(stages: Sequence[StageNodes]) -> list[StageNodes]:
        by_width = sorted(stages, key=pool.exponent_of)
        narrower = [stage for stage in by_width if pool.exponent_of(stage) < tuned.EVEN]
        wider = by_width[: len(narrower) - 1 : -1]
        pairs = [stage for pair in zip(narrower, wider, strict=False) for stage in pair]
        return [*pairs, *wider[len(narrower) :]]

    return PatternProgram(pool=pool, num_layers=problem.model.num_layers, in_order=alternating)


def _region_chain(
    problem: Problem, options: SearchOptions, slow: float, groups: Mapping[str, str]
) -> PatternProgram:
    """The program of stages in one group R each, which is visited (v_R = 1) or not.

    Of the crossings, E join even stages, each of another group, and form paths: fewer than there
    are groups with even stages (a_R = 1). The others need one one-sided stage each. Rows beyond the
    kinds' (z = 1 when E > 0, e_R and o_R the numbers of even and one-sided stages):

        sum_R v_R - E - sum_R o_R <= 1          e_R + o_R <= 2 v_R
        2 E <= sum_R e_R                        stages of R <= nodes of R * v_R
        E <= sum_R a_R - z,  E <= L z           a_R <= e_R
    """
    kinds = free_kinds(problem, options, groups=groups)
    names = sorted({kind.group for kind in kinds})
    limits: list[float] = []

    def row(limit: float) -> int:
        limits.append(limit)
        return len(kinds) + len(limits) - 1

    crossings, halves, paths, begun = row(1.0), row(0.0), row(0.0), row(0.0)
    most = float(problem.model.num_layers)
    columns = [
        ExtraColumn(
            use_of_rows={crossings: -1.0, halves: 2.0, paths: 1.0, begun: 1.0},
            upper=float(len(names)),
        ),
        ExtraColumn(use_of_rows={paths: 1.0, begun: -most}, upper=1.0),
    ]
    families: list[PatternFamily] = []
    for name in names:
        own = tuple(n for n, kind in enumerate(kinds) if kind.group == name)
        nodes = float(sum(kinds[number].count for number in own))
        edges, used, has_even = row(0.0), row(0.0), row(0.0)
        visited = {crossings: 1.0, edges: -2.0, used: -min(nodes, most)}
        columns.append(ExtraColumn(use_of_rows=visited, upper=1.0))
        columns.append(ExtraColumn(use_of_rows={paths: -1.0, has_even: 1.0}, upper=1.0))
        for exponent, use in (
            (0.0, {}),
            (tuned.EVEN, {edges: 1.0, halves: -1.0, has_even: -1.0}),
            (tuned.ONE_SIDED, {edges: 1.0, crossings: -1.0}),
        ):
            families.append(
                PatternFamily(
                    kinds=own,
                    link_tokens_per_s=slow,
                    width_exponent=exponent,
                    use_of_rows=use | {used: 1.0},
                )
            )
    pool = PatternPool(
        kinds,
        families,
        extra_limits=limits,
        extra_columns=columns,
        max_stages=options.rules.max_hops,
    )
    return PatternProgram(
        pool=pool, num_layers=problem.model.num_layers, in_order=partial(_in_chain, pool)
    )


def _in_chain(pool: PatternPool, stages: Sequence[StageNodes]) -> list[StageNodes]:
    """Groups one after the other, in an order whose crossings the wide stages can pass on.

    Wide stages are at the groups' ends; of several orders, the first with fewest faults.
    """
    of_group: dict[str, list[StageNodes]] = {}
    for stage in stages:
        of_group.setdefault(pool.kinds[stage.kinds[0]].group, []).append(stage)
    orders: Iterator[Sequence[str]] = iter([sorted(of_group)])
    if len(of_group) <= tuned.MOST_PERMUTED:
        orders = permutations(sorted(of_group))
    best: list[list[StageNodes]] = []
    fewest = math.inf
    for order, flips in product(orders, _flips(len(of_group))):
        chain = [_with_wide_ends(pool, of_group[group]) for group in order]
        turned = [part[::-1] if flip else part for part, flip in zip(chain, flips, strict=True)]
        faults = sum(
            pool.exponent_of(before[-1]) + pool.exponent_of(after[0]) < 1
            for before, after in pairwise(turned)
        )
        if faults < fewest:
            best, fewest = turned, faults
        if fewest == 0:
            break
    return [stage for part in best for stage in part]


def _with_wide_ends(pool: PatternPool, stages: Sequence[StageNodes]) -> list[StageNodes]:
    """The widest stage first, the next widest last, the others between."""
    widest_first = sorted(stages, key=pool.exponent_of, reverse=True)
    return [widest_first[0], *widest_first[2:], *widest_first[1:2]]


def _flips(count: int) -> Iterator[tuple[bool, ...]]:
    """Which groups to turn round: all combinations of few, none of many."""
    if count > tuned.MOST_PERMUTED:
        yield (False,) * count
        return
    for number in range(2**count):
        yield tuple(bool(number >> position & 1) for position in range(count))


def _slow_link_tokens_per_s(links: LinkTable, groups: Mapping[str, str]) -> float | None:
    """Tokens/s of a link between two groups; None with one group."""
    numbers = {group: number for number, group in enumerate(sorted(set(groups.values())))}
    of_node = np.array([numbers[groups[name]] for name in links.names])
    between = links.tokens_per_s[of_node[:, None] != of_node[None, :]]
    if between.size == 0:
        return None
    return float(np.quantile(between, tuned.LINK_QUANTILE))
