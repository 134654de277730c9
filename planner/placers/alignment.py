"""Exchanges equal nodes of a placement, so that as many as possible need not load layers.

Equal nodes that hold the same layers now are one group: a linear program, whose vertices are
integer, gives how many of a group get which layers.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from planner.bounds.packing_program import PackingProgram
from planner.domain.cluster import Cluster
from planner.domain.placement import LayerRange, Placement
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
    for names in groups_of_like_nodes(problem, rules):
        now, wanted = _by_held(names, running), _by_held(names, placement)
        program = PackingProgram([float(len(held)) for held in (*now.values(), *wanted.values())])
        pairs = [(old, new) for old in now for new in wanted]
        for number, (old, new) in enumerate(pairs):
            row, column = divmod(number, len(wanted))
            loaded = 0 if new is None else new.beyond(old)
            # As every pair gains something, all nodes are in some.
            gain = float(1 + problem.model.num_layers - loaded)
            program.add_column({row: 1.0, len(now) + column: 1.0}, value=gain)
        for (old, new), count in zip(pairs, program.solve().amounts.tolist(), strict=True):
            for _ in range(round(count)):
                name, place = now[old].pop(0), wanted[new].pop(0)
                layers.pop(name, None)
                if new is not None:
                    layers[name] = new
                    takes_place_of[place] = name
    return Placement(
        layers=layers,
        components=tuple(
            frozenset(takes_place_of[name] for name in component)
            for component in placement.components
        ),
    )


def _by_held(names: Sequence[str], placement: Placement) -> dict[LayerRange | None, list[str]]:
    by_held: dict[LayerRange | None, list[str]] = {}
    for name in names:
        by_held.setdefault(placement.layers.get(name), []).append(name)
    return by_held


def groups_of_like_nodes(problem: Problem, rules: PlacementRules) -> list[list[str]]:
    """See `aligned_to`; nodes that are like no other are groups by themselves, or in none."""
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
    """True if exchanging the two nodes leaves the qualities of all links the same."""
    changed_places = {one: other, other: one}
    swapped = {
        (way, changed_places.get(end, end)): quality
        for (way, end), quality in named.get(one, {}).items()
    }
    return swapped == named.get(other, {})
