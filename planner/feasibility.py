"""Whether rules and a problem agree, and what is left when the rules are applied."""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from planner.capacity import (
    LayerLimits,
    ModelDoesNotFit,
    allowed_limits,
    check_cluster_can_hold_model,
    held_by_largest,
    max_layers,
)
from planner.domain.cluster import COORDINATOR, Node, free_name
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile
from planner.domain.rules import InvalidRules, PlacementRules
from planner.link_matrix import link_capacities_tokens_per_s
from planner.units import bytes_text

Bools: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class ModelOutOfReach(ModelDoesNotFit):
    """Links lead through too few nodes to hold the model."""


def restricted_problem(problem: Problem, rules: PlacementRules) -> Problem:
    """The problem without excluded nodes, in which no node can hold more layers than allowed.

    A placement that is valid in the restricted problem has the same flow in both. Pins and the hop
    limit are not part of a problem; only the rules have them. Raises InvalidRules when no node is
    left, or when the rules name a node that does not exist.
    """
    _check_names(problem, rules)
    profiles: dict[str, ComputeProfile] = {}
    nodes: list[Node] = []
    for node in problem.cluster.nodes:
        if node.name in rules.excluded_nodes:
            continue
        profile = problem.profile_of(node.name)
        limits = allowed_limits(problem, node.name, rules)
        profile = _limited(profile, limits, taken=problem.compute_profiles)
        profiles[profile.name] = profile
        nodes.append(replace(node, compute_profile=profile.name))
    if not nodes:
        raise InvalidRules(
            f"all {len(problem.cluster.nodes)} nodes of the cluster are excluded; leave some in"
        )
    cluster = problem.cluster.without(rules.excluded_nodes)
    return replace(problem, compute_profiles=profiles, cluster=replace(cluster, nodes=tuple(nodes)))


def applied(problem: Problem, rules: PlacementRules) -> tuple[Problem, PlacementRules]:
    """The restricted problem, and the rules that remain. Raises as `check_rules` does."""
    check_rules(problem, rules)
    return restricted_problem(problem, rules), rules.once_restricted


def check_rules(problem: Problem, rules: PlacementRules) -> None:
    """Raise InvalidRules for rules that contradict the problem, ModelDoesNotFit for lack of room.

    Rules that pass may still be infeasible, when pins leave gaps that no ranges fit.
    """
    restricted = restricted_problem(problem, rules)
    for name, pin in rules.pinned.items():
        limits = allowed_limits(problem, name, rules)
        if pin.end > problem.model.num_layers:
            raise InvalidRules(
                f"node {name!r} is pinned to layers {pin} but model {problem.model.name!r} has "
                f"{problem.model.num_layers} layers; the end must be at most that"
            )
        limit = limits.of(pin.first, pin.end, num_layers=problem.model.num_layers)
        if len(pin) > limit:
            raise InvalidRules(
                f"node {name!r} is pinned to {len(pin)} layers {pin} but "
                f"{_what_limits(problem, name, pin, limit)}; pin it to {limit} layers or fewer"
            )
    _check_memory(problem, restricted, rules)
    _check_beside_pins(restricted, rules)
    _check_hops(restricted, rules)


def conform(problem: Problem, placement: Placement, rules: PlacementRules) -> Placement:
    """The part of a placement that fits the problem and the rules; pinned nodes get their pins.

    Nodes that are gone or excluded are left out. Nodes that hold too much keep their first layers.
    Components stay, unless a pin gives layers to a node that was in none.
    """
    layers: dict[str, LayerRange] = {}
    for name, held in placement.layers.items():
        if not problem.cluster.has_node(name) or held.first >= problem.model.num_layers:
            continue
        limits = allowed_limits(problem, name, rules)
        end = _longest_end(limits, held, num_layers=problem.model.num_layers)
        if end > held.first:
            layers[name] = LayerRange(first=held.first, end=end)
    layers |= dict(rules.pinned)
    components = tuple(
        frozenset(component & layers.keys())
        for component in placement.components
        if component & layers.keys()
    )
    if sum(map(len, components)) < len(layers):
        components = ()
    return Placement(layers=layers, components=components)


def _check_names(problem: Problem, rules: PlacementRules) -> None:
    for what, names in (
        ("excluded", rules.excluded_nodes),
        ("pinned", rules.pinned.keys()),
        ("limited in layers", rules.max_layers_of.keys()),
    ):
        for name in sorted(names):
            if not problem.cluster.has_node(name):
                raise InvalidRules(
                    f"node {name!r} is {what} but is not a node of cluster "
                    f"{problem.cluster.name!r}; use the cluster's node names"
                )


def _limited(
    profile: ComputeProfile, limits: LayerLimits, *, taken: Collection[str]
) -> ComputeProfile:
    """The profile with no more layers than allowed, by a name of its own where that changes it."""
    memory = profile.memory
    if memory is not None:
        first, last, both = (
            replace(room, max_layers=min(room.max_layers, limit))
            for room, limit in zip(
                (memory.first, memory.last, memory.both), limits[1:], strict=True
            )
        )
        memory = replace(memory, first=first, last=last, both=both)
    if limits.middle >= profile.max_layers and memory == profile.memory:
        return profile
    return replace(
        profile,
        name=free_name(f"{profile.name}, {limits.middle} layers", taken),
        max_layers=min(limits.middle, profile.max_layers),
        memory=memory,
    )


def _longest_end(limits: LayerLimits, held: LayerRange, *, num_layers: int) -> int:
    """End of the longest allowed part of `held` from its first layer on."""
    for end in range(min(held.end, num_layers), held.first, -1):
        if end - held.first <= limits.of(held.first, end, num_layers=num_layers):
            return end
    return held.first


def _what_limits(problem: Problem, name: str, pin: LayerRange, limit: int) -> str:
    profile = problem.profile_of(name)
    has_first, has_last = pin.first == 0, pin.end == problem.model.num_layers
    holds = profile.most_layers(has_first=has_first, has_last=has_last)
    ends = [end for end, there in (("first", has_first), ("last", has_last)) if there]
    where = f" with the model's {' and '.join(ends)} layer" if ends and profile.memory else ""
    if limit == holds:
        return f"its profile {profile.name!r} has memory for {holds}{where}"
    return f"the rules leave its profile {profile.name!r} (memory for {holds}{where}) {limit}"


def _check_memory(problem: Problem, restricted: Problem, rules: PlacementRules) -> None:
    """Raise an error that names the rules, if they and not the memory leave too little room."""
    check_cluster_can_hold_model(problem)
    try:
        check_cluster_can_hold_model(restricted)
    except ModelDoesNotFit as error:
        raise ModelDoesNotFit(
            f"{error}; without the rules the model fits: {_rules_on_memory(rules)}"
        ) from None


def check_reach(problem: Problem) -> None:
    """Raise ModelOutOfReach if no placement can carry flow because links are missing.

    Nodes that no way from the coordinator and back to it passes can hold nothing of use.
    """
    cluster = problem.cluster
    names = [node.name for node in cluster.nodes if max_layers(problem, node.name) > 0]
    linked = link_capacities_tokens_per_s(problem, [*names, COORDINATOR]) > 0
    missing = [
        f"no link leads {way}"
        for way, ends in (
            ("from the coordinator to any node", linked[-1, :-1]),
            ("from any node back to the coordinator", linked[:-1, -1]),
        )
        if not ends.any()
    ]
    if missing:
        regions = " and ".join(sorted({repr(node.region) for node in cluster.nodes}))
        raise ModelOutOfReach(
            f"{' and '.join(missing)} in cluster {cluster.name!r}, so no request can be served: "
            f"add links of {COORDINATOR!r}, or region pairs between its region "
            f"{cluster.coordinator_region!r} and {regions}"
        )
    useful = _reached(linked[-1, :-1], linked[:-1, :-1])
    useful &= _reached(linked[:-1, -1], linked[:-1, :-1].T)
    num_layers = problem.model.num_layers
    holdable = sum(
        min(max_layers(problem, name), num_layers)
        for name, is_useful in zip(names, useful, strict=True)
        if is_useful
    )
    if holdable < num_layers:
        apart = [name for name, is_useful in zip(names, useful, strict=True) if not is_useful]
        raise ModelOutOfReach(
            f"the {int(useful.sum())} nodes on ways from the coordinator and back to it can hold "
            f"{holdable} of {num_layers} layers; {len(apart)} nodes ({apart[0]!r} first) are on "
            "none: add links, or region pairs, that join them to the others or to the coordinator"
        )


def _reached(begun: Bools, leads: Bools) -> Bools:
    """Vertices reachable from `begun`, including these; leads[i, k]: from i to k."""
    reached = begun
    while True:
        further: Bools = reached | leads[reached].any(axis=0)
        if (further == reached).all():
            return reached
        reached = further


def _rules_on_memory(rules: PlacementRules) -> str:
    remedies = []
    if rules.excluded_nodes:
        remedies.append(f"exclude fewer nodes than {len(rules.excluded_nodes)}")
    if rules.max_layers_per_node is not None:
        remedies.append(f"allow more layers than {rules.max_layers_per_node} on a node")
    if rules.max_layers_of:
        remedies.append(f"allow more layers on {', '.join(sorted(rules.max_layers_of))}")
    if rules.kv_reserve_tokens > 0:
        remedies.append(f"reserve KV room for fewer tokens than {rules.kv_reserve_tokens:g}")
    return ", or ".join(remedies)


def _check_beside_pins(restricted: Problem, rules: PlacementRules) -> None:
    """Nodes that are not pinned must be able to hold what no pin holds."""
    held_by_pins = {layer for pin in rules.pinned.values() for layer in range(pin.first, pin.end)}
    open_layers = [
        layer for layer in range(restricted.model.num_layers) if layer not in held_by_pins
    ]
    holdable = sum(
        restricted.profile_of(node.name).max_layers
        for node in restricted.cluster.nodes
        if node.name not in rules.pinned
    )
    missing = len(open_layers) - holdable
    if missing <= 0:
        return
    missing_bytes = missing * restricted.model.bytes_per_layer
    raise ModelDoesNotFit(
        f"the pins leave layers {_as_ranges(open_layers)} to nodes that can hold {holdable} of "
        f"these {len(open_layers)}; {missing} layers ({bytes_text(missing_bytes)}) are missing: "
        "pin fewer nodes, or pin them to different layers"
    )


def _check_hops(restricted: Problem, rules: PlacementRules) -> None:
    num_layers = restricted.model.num_layers
    held_by = held_by_largest(restricted)
    if rules.max_hops is None or rules.max_hops >= len(held_by):
        return
    held, needed = held_by[rules.max_hops], bisect_left(held_by, num_layers)
    if held >= num_layers:
        return
    raise ModelDoesNotFit(
        f"max_hops is {rules.max_hops}, and the {rules.max_hops} largest nodes hold {held} of "
        f"{num_layers} layers; layers [{held}, {num_layers}) cannot be held: allow {needed} hops "
        "or more, or add larger nodes"
    )


def _as_ranges(layers: list[int]) -> str:
    """[0, 1, 2, 7] -> "[0, 3) and [7, 8)"."""
    starts = [layer for layer in layers if layer - 1 not in set(layers)]
    ends = [layer + 1 for layer in layers if layer + 1 not in set(layers)]
    return " and ".join(f"[{first}, {end})" for first, end in zip(starts, ends, strict=True))
