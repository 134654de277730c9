"""Removes slow links before the MILP, whose size grows with the links (Helix §4.5, §6.8)."""

import random
from collections.abc import Collection, Iterable

from planner.domain.problem import Problem

Edge = tuple[str, str]


def node_links(problem: Problem) -> tuple[Edge, ...]:
    """Every directed link between two nodes, in the cluster's order."""
    names = [node.name for node in problem.cluster.nodes]
    return tuple(
        (source, target)
        for source in names
        for target in names
        if source != target and problem.cluster.link_between(source, target) is not None
    )


def prune_links(
    problem: Problem,
    links: tuple[Edge, ...],
    *,
    average_degree: float,
    keep: Collection[Edge],
    seed: int,
) -> tuple[Edge, ...]:
    """Those of `links` (between nodes) that remain with `average_degree` outgoing links per node.

    The slowest links are removed first. Ties are broken by a seeded random choice, because a fixed
    order, such as by names, would cut the same nodes off everywhere. A link always remains if it is
    in `keep` (the links that carry the warm start's flow), or if without it some node could no
    longer reach another that it reaches now. Links of the coordinator are never removed.
    """
    surplus = len(links) - int(average_degree * len(problem.cluster.nodes))
    if surplus <= 0:
        return links
    targets: dict[str, set[str]] = {node.name: set() for node in problem.cluster.nodes}
    for source, target in links:
        targets[source].add(target)
    kept = set(keep)
    for source, target in _slowest_first(problem, links, seed=seed):
        if surplus == 0:
            break
        if (source, target) in kept:
            continue
        targets[source].remove(target)
        if _reaches(targets, source, target):
            surplus -= 1
        else:
            targets[source].add(target)
    return tuple(link for link in links if link[1] in targets[link[0]])


def _slowest_first(problem: Problem, links: Iterable[Edge], *, seed: int) -> list[Edge]:
    shuffled = list(links)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - ties, not secrets
    return sorted(shuffled, key=lambda link: _bandwidth_bytes_per_s(problem, link))


def _bandwidth_bytes_per_s(problem: Problem, link: Edge) -> float:
    found = problem.cluster.link_between(*link)
    return found.bandwidth_bytes_per_s if found is not None else 0.0


def _reaches(targets: dict[str, set[str]], source: str, target: str) -> bool:
    reached = {source}
    waiting = [source]
    while waiting:
        neighbours = targets[waiting.pop()]
        if target in neighbours:
            return True
        waiting.extend(neighbours - reached)
        reached |= neighbours
    return False
