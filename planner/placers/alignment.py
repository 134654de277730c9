"""The same placement with nodes that are alike exchanged, so that they keep what they hold.

Minimum-cost assignment within each group of interchangeable nodes (Hungarian method).
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from planner.domain.cluster import Cluster
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules

Quality: TypeAlias = tuple[float, float]
"""bandwidth in bytes/s and latency in s"""


def aligned_to(
    problem: Problem, placement: Placement, running: Placement, *, rules: PlacementRules
) -> Placement:
    """The exchange of like nodes that loads the fewest layers; same flow, hops and components.

    Nodes are alike when they have one profile, one region and the same links, are neither pinned
    nor limited by themselves, and no shared bandwidth names them.
    """
    layers = dict(placement.layers)
    takes_place_of = {name: name for name in layers}
    for names in _groups_of_like_nodes(problem, rules):
        ranges = [placement.layers.get(name) for name in names]
        costs = [
            [
                0.0 if held is None else float(held.beyond(running.layers.get(name)))
                for held in ranges
            ]
            for name in names
        ]
        for name, column in zip(names, assignment(costs), strict=True):
            layers.pop(name, None)
            held = ranges[column]
            if held is not None:
                layers[name] = held
                takes_place_of[names[column]] = name
    return Placement(
        layers=layers,
        components=tuple(
            frozenset(takes_place_of[name] for name in component)
            for component in placement.components
        ),
    )


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
    apart |= {member for shared in cluster.shared for member in shared.members}
    named = _named_links(cluster)
    groups: dict[tuple[str, str], list[list[str]]] = {}
    for node in cluster.nodes:
        if node.name in apart:
            continue
        of_kind = groups.setdefault((node.compute_profile, node.region), [])
        for group in of_kind:
            if _have_like_links(group[0], node.name, named):
                group.append(node.name)
                break
        else:
            of_kind.append([node.name])
    return [group for of_kind in groups.values() for group in of_kind]


def _named_links(cluster: Cluster) -> dict[str, dict[tuple[str, str], Quality]]:
    """node -> {("to" or "from", other end): (bandwidth, latency)} of links given by name."""
    named: dict[str, dict[tuple[str, str], Quality]] = {}
    for link in cluster.links:
        quality = link.bandwidth_bytes_per_s, link.latency_s
        named.setdefault(link.source, {})["to", link.target] = quality
        named.setdefault(link.target, {})["from", link.source] = quality
    return named


def _have_like_links(
    one: str, other: str, named: Mapping[str, Mapping[tuple[str, str], Quality]]
) -> bool:
    """Whether the two can change places and nobody, they included, finds another link."""
    changed_places = {one: other, other: one}
    swapped = {
        (way, changed_places.get(end, end)): quality
        for (way, end), quality in named.get(one, {}).items()
    }
    return swapped == named.get(other, {})
