"""The same placement with nodes that are alike exchanged, so that they keep what they hold.

Minimum-cost assignment within each group of interchangeable nodes (Hungarian method).
"""

import math
from collections.abc import Sequence

from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules


def aligned_to(
    problem: Problem, placement: Placement, running: Placement, *, rules: PlacementRules
) -> Placement:
    """The exchange of like nodes that loads the fewest layers; same flow, same hops.

    Nodes are alike when they have one profile and one region, are neither pinned nor limited by
    themselves, and no link and no shared bandwidth names them.
    """
    layers = dict(placement.layers)
    for names in _groups_of_like_nodes(problem, rules):
        ranges = [placement.layers.get(name) for name in names]
        costs = [
            [_layers_to_load(running.layers.get(name), held) for held in ranges] for name in names
        ]
        for name, column in zip(names, assignment(costs), strict=True):
            layers.pop(name, None)
            held = ranges[column]
            if held is not None:
                layers[name] = held
    return Placement(layers=layers)


def assignment(costs: Sequence[Sequence[float]]) -> list[int]:
    """For each row of a square matrix its column, each column once, at the least total cost.

    The Hungarian method with potentials, O(n^3).
    """
    size = len(costs)
    row_potential = [0.0] * (size + 1)
    column_potential = [0.0] * (size + 1)
    row_of_column = [0] * (size + 1)  # rows and columns count from 1; 0 is none
    for row in range(1, size + 1):
        row_of_column[0] = row
        column = 0
        least = [math.inf] * (size + 1)
        came_from = [0] * (size + 1)
        done = [False] * (size + 1)
        while row_of_column[column] != 0:
            done[column] = True
            current, step, following = row_of_column[column], math.inf, 0
            for other in range(1, size + 1):
                if done[other]:
                    continue
                reduced = (
                    costs[current - 1][other - 1] - row_potential[current] - column_potential[other]
                )
                if reduced < least[other]:
                    least[other], came_from[other] = reduced, column
                if least[other] < step:
                    step, following = least[other], other
            for other in range(size + 1):
                if done[other]:
                    row_potential[row_of_column[other]] += step
                    column_potential[other] -= step
                else:
                    least[other] -= step
            column = following
        while column:
            row_of_column[column] = row_of_column[came_from[column]]
            column = came_from[column]
    columns = [0] * size
    for column in range(1, size + 1):
        columns[row_of_column[column] - 1] = column - 1
    return columns


def _groups_of_like_nodes(problem: Problem, rules: PlacementRules) -> list[list[str]]:
    cluster = problem.cluster
    apart = set(rules.pinned) | set(rules.max_layers_of)
    apart |= {end for link in cluster.links for end in (link.source, link.target)}
    apart |= {member for shared in cluster.shared for member in shared.members}
    groups: dict[tuple[str, str], list[str]] = {}
    for node in cluster.nodes:
        if node.name not in apart:
            groups.setdefault((node.compute_profile, node.region), []).append(node.name)
    return list(groups.values())


def _layers_to_load(before: LayerRange | None, after: LayerRange | None) -> float:
    if after is None:
        return 0.0
    if before is None:
        return float(len(after))
    return float(len(after) - max(0, min(after.end, before.end) - max(after.first, before.first)))
