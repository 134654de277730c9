"""Ways to divide a cluster's nodes among components that each hold the whole model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.capacity import layer_limits, most_held
from planner.domain.problem import Problem
from planner.timing import layer_times_of
from planner.tuning.served import PartitionsTuning as tuned

Partition = tuple[tuple[str, ...], ...]


def partitions(problem: Problem) -> list[Partition]:
    """Partitions by compute profile, by region, by both, and by speed; without duplicates.

    Groups too small for the model join the smallest group with which they can hold it.
    """
    found: dict[frozenset[frozenset[str]], Partition] = {}
    for groups in _groupings(problem):
        parts = _joined(problem, groups)
        if len(parts) > 1:
            found.setdefault(frozenset(map(frozenset, parts)), parts)
    return list(found.values())


def _groupings(problem: Problem) -> Iterator[list[list[str]]]:
    cluster = problem.cluster
    yield list(cluster.names_by(lambda node: node.compute_profile).values())
    kind_of = {node.name: node.compute_profile for node in cluster.nodes}
    regions = list(cluster.names_by(lambda node: node.region).values())
    yield regions
    if len(regions) == 1:
        yield from _by_speed(problem)
    yield [
        list(part)
        for region in _joined(problem, regions)
        for part in _joined(problem, _by(kind_of, region))
    ]


def _by(kind_of: Mapping[str, str], names: Iterable[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(kind_of[name], []).append(name)
    return list(groups.values())


def _by_speed(problem: Problem) -> Iterator[list[list[str]]]:
    """Fast kinds of nodes and slow ones: the two cuts that come nearest to halves of the layers.

    Slow nodes delay every token of a part, which takes KV room on its fast ones too.
    """
    kinds = sorted(
        problem.cluster.names_by(lambda node: node.compute_profile).values(),
        key=lambda names: layer_times_of(problem, names[0]).decode_s(tuned.DECODES),
    )
    held = [sum(problem.profile_of(name).max_layers for name in names) for names in kinds]
    cuts = sorted(range(1, len(kinds)), key=lambda cut: abs(sum(held[:cut]) - sum(held[cut:])))
    for cut in cuts[: tuned.SPEED_CUTS]:
        yield [[name for names in side for name in names] for side in (kinds[:cut], kinds[cut:])]


def _joined(problem: Problem, groups: Sequence[Sequence[str]]) -> Partition:
    """Smallest first, every group that cannot hold the model joins the next larger one."""
    limits = {node.name: layer_limits(problem, node.name) for node in problem.cluster.nodes}

    def holds(group: Sequence[str]) -> int:
        return most_held([limits[name] for name in group], num_layers=problem.model.num_layers)

    waiting = sorted((list(group) for group in groups), key=holds)
    parts: list[list[str]] = []
    while waiting:
        group = waiting.pop(0)
        if holds(group) >= problem.model.num_layers:
            parts.append(group)
        elif waiting:
            waiting[0] = group + waiting[0]
            waiting.sort(key=holds)
        elif parts:
            parts[0] += group
    return tuple(tuple(sorted(part)) for part in parts)
