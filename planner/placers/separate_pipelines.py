"""Separate pipelines: one replica of the model for each kind of machine (Helix §6.2, "SP")."""

from planner.capacity import max_layers
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.placers.base import equal_split


def place_separate_pipelines(problem: Problem) -> Placement | None:
    """An equal split of all layers over the nodes of each compute profile, in inventory order.

    Profiles whose nodes cannot hold a replica are left out, and so are a profile's nodes beyond
    one per layer. None when no profile can hold the model. Every replica is a component of its own.
    """
    num_layers = problem.model.num_layers
    names_by_profile: dict[str, list[str]] = {}
    for node in problem.cluster.nodes:
        names_by_profile.setdefault(node.compute_profile, []).append(node.name)
    layers: dict[str, LayerRange] = {}
    components = []
    for names in names_by_profile.values():
        num_stages = min(len(names), num_layers)
        stages = equal_split(num_layers, num_stages)
        if max(len(stage) for stage in stages) <= max_layers(problem, names[0]):
            layers.update(zip(names[:num_stages], stages, strict=True))
            components.append(frozenset(names[:num_stages]))
    if not components:
        return None
    return Placement(layers=layers, components=tuple(components) if len(components) > 1 else ())
