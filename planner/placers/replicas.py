"""Replicas: the whole model as often as each kind of machine can hold it.

Where machines hold much, pipelines of few of them often serve most; separate pipelines (Helix §6.2)
are one for each kind, however many its machines.
"""

from collections.abc import Sequence

from planner.capacity import fits, max_layers
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.base import equal_split


def place_replicas(problem: Problem) -> Placement | None:
    """Like nodes of a region dealt out to as many pipelines as they can hold, split equally.

    Kinds whose nodes cannot hold a replica are left out, and so are nodes beyond one per layer.
    None when no kind can hold the model. Every replica is a component of its own.
    """
    num_layers = problem.model.num_layers
    kinds: dict[tuple[str, str], list[str]] = {}
    for node in problem.cluster.nodes:
        kinds.setdefault((node.region, node.compute_profile), []).append(node.name)
    layers: dict[str, LayerRange] = {}
    components = []
    for names in kinds.values():
        most = max_layers(problem, names[0])
        copies = len(names) // -(-num_layers // most) if most else 0
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
