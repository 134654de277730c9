"""Replicas: the whole model as often as each kind of machine can hold it.

Where machines hold much, pipelines of few of them often serve most; separate pipelines (Helix §6.2)
are one for each kind, however many its machines.
"""

from collections.abc import Callable, Iterable, Sequence

from planner.capacity import fits, max_layers
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.base import equal_split


def place_replicas(problem: Problem) -> Placement | None:
    """Equal nodes of a region form as many pipelines as they can hold, with equal stages."""

    def most_copies(names: Sequence[str]) -> int:
        most = max_layers(problem, names[0])
        return len(names) // -(-problem.model.num_layers // most) if most else 0

    kinds = problem.cluster.names_by(lambda node: (node.region, node.compute_profile))
    return dealt_out(problem, kinds.values(), most_copies=most_copies)


def dealt_out(
    problem: Problem, kinds: Iterable[Sequence[str]], *, most_copies: Callable[[Sequence[str]], int]
) -> Placement | None:
    """The nodes of each kind dealt out to that many pipelines, or as many fewer as they can hold.

    Kinds whose nodes cannot hold a replica are left out, and so are nodes beyond one per layer.
    None when no kind can hold the model. Every replica is a component of its own.
    """
    num_layers = problem.model.num_layers
    layers: dict[str, LayerRange] = {}
    components = []
    for names in kinds:
        copies = most_copies(names)
        while copies and not _fit(problem, names, copies):
            copies -= 1
        for dealt in _dealt(names, copies, num_layers):
            layers.update(zip(dealt, equal_split(num_layers, len(dealt)), strict=True))
            components.append(frozenset(dealt))
    if not components:
        return None
    return Placement(layers=layers, components=tuple(components) if len(components) > 1 else ())


def _dealt(names: Sequence[str], copies: int, num_layers: int) -> list[Sequence[str]]:
    return [names[first::copies][:num_layers] for first in range(copies)]


def _fit(problem: Problem, names: Sequence[str], copies: int) -> bool:
    """True if every node has memory for its part, also where that has an end of the model."""
    num_layers = problem.model.num_layers
    return all(
        fits(problem, name, stage)
        for dealt in _dealt(names, copies, num_layers)
        for name, stage in zip(dealt, equal_split(num_layers, len(dealt)), strict=True)
    )
