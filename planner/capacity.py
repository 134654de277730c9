"""Capacities of nodes and links in tokens/s: the flow graph's edge capacities (Helix §4.3)."""

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from planner.domain.cluster import COORDINATOR, SINK, SOURCE, SharedBandwidth
from planner.domain.errors import PlannerError
from planner.domain.placement import LayerRange, Placement, together
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.units import bytes_text

_COORDINATOR_ENDS = frozenset({COORDINATOR, SOURCE, SINK})


class ModelDoesNotFit(PlannerError):
    """The cluster's memory cannot hold every layer of the model once."""


class LayerLimits(NamedTuple):
    """The most layers that a node may hold, by the ends of the model that are among them.

    As an array, the index is (holds the first layer) + 2 * (holds the last layer).
    """

    middle: int
    first: int
    last: int
    both: int

    def of(self, first: int, end: int, *, num_layers: int) -> int:
        """The limit for layers [first, end)."""
        return self[(first == 0) + 2 * (end == num_layers)]

    def allow(self, held: LayerRange, *, num_layers: int) -> bool:
        """True if a node may hold these layers."""
        return len(held) <= self.of(held.first, held.end, num_layers=num_layers)


_ENDS = ((False, False), (True, False), (False, True), (True, True))


def max_layers(problem: Problem, node_name: str) -> int:
    """Most layers a node may hold anywhere: its memory's limit, never more than the model has."""
    return min(problem.profile_of(node_name).max_layers, problem.model.num_layers)


def layer_limits(problem: Problem, node_name: str) -> LayerLimits:
    """The most layers that a node's memory holds, with and without the ends of the model."""
    profile = problem.profile_of(node_name)
    return LayerLimits(
        *(
            min(profile.most_layers(has_first=first, has_last=last), problem.model.num_layers)
            for first, last in _ENDS
        )
    )


def fits(problem: Problem, node_name: str, held: LayerRange) -> bool:
    """True if the node's memory holds these layers of the model."""
    limits = layer_limits(problem, node_name)
    return limits.allow(held, num_layers=problem.model.num_layers)


def holds_model(problem: Problem, node_name: str) -> bool:
    """True if the node's memory holds the whole model."""
    return layer_limits(problem, node_name).both >= problem.model.num_layers


def kv_room_token_layers(problem: Problem, node_name: str, held: LayerRange) -> float:
    """KV room of a node that holds these layers, in tokens x layers."""
    return problem.profile_of(node_name).kv_room_token_layers(
        len(held), has_first=held.first == 0, has_last=held.end == problem.model.num_layers
    )


def most_held(limits: Sequence[LayerLimits], *, num_layers: int) -> int:
    """The most layers that nodes with these limits hold together, each layer once.

    One node holds the first layer and another the last, or one the whole model.
    """
    everywhere = sum(one.middle for one in limits)
    if any(one.both >= num_layers for one in limits):
        return everywhere
    at_first, at_last = (
        sorted(
            (one.middle - at_end, number)
            for number, one in enumerate(limits)
            if (at_end := one[index]) > 0
        )[:2]
        for index in (1, 2)
    )
    losses = [lost + other for lost, a in at_first for other, b in at_last if a != b]
    if losses:
        return everywhere - min(losses)
    return min(everywhere, num_layers - 1)


def held_by_largest(problem: Problem) -> list[int]:
    """[i]: the most layers that i nodes hold anywhere together, each no more than the model has."""
    held = sorted((max_layers(problem, node.name) for node in problem.cluster.nodes), reverse=True)
    return list(accumulate(held, initial=0))


def longest_ranges(problem: Problem, node_name: str) -> Iterator[LayerRange]:
    """The longest ranges that the node's memory holds, from the model's first layer to its last."""
    limits, num_layers = layer_limits(problem, node_name), problem.model.num_layers
    if limits.both >= num_layers:
        yield LayerRange(first=0, end=num_layers)
        return
    if num_layers == 1:
        return
    if limits.first > 0:
        yield LayerRange(first=0, end=min(limits.first, num_layers - 1))
    if limits.middle > 0:
        for first in range(1, num_layers - limits.middle):
            yield LayerRange(first=first, end=first + limits.middle)
    if limits.last > 0:
        yield LayerRange(first=max(1, num_layers - limits.last), end=num_layers)


def allowed_limits(problem: Problem, node_name: str, rules: PlacementRules) -> LayerLimits:
    """The most layers that a node may hold under the rules; all 0 when it is excluded.

    A pinned node holds exactly its pin; what it could hold otherwise is returned all the same.
    """
    if node_name in rules.excluded_nodes:
        return LayerLimits(0, 0, 0, 0)
    profile = problem.profile_of(node_name)
    limits = layer_limits(problem, node_name)
    found: list[int] = []
    for (first, last), limit in zip(_ENDS, limits, strict=True):
        if profile.memory is None and found:
            found.append(found[0])
            continue
        if rules.max_layers_per_node is not None:
            limit = min(limit, rules.max_layers_per_node)
        limit = min(limit, rules.max_layers_of.get(node_name, limit))
        with_kv_room = 0
        while with_kv_room < limit and profile.kv_room_token_layers(
            with_kv_room + 1, has_first=first, has_last=last
        ) >= rules.kv_reserve_tokens * (with_kv_room + 1):
            with_kv_room += 1
        found.append(with_kv_room)
    return LayerLimits(*found)


def allowed_layers(problem: Problem, node_name: str, rules: PlacementRules) -> int:
    """Most layers a node may hold anywhere under the rules; 0 when it is excluded."""
    return allowed_limits(problem, node_name, rules).middle


def throughput_tokens_per_s(problem: Problem, node_name: str, layers_held: int) -> float:
    """T_j of a node that holds j layers; 0 when it holds none or more than it can.

    The paper takes the minimum with the node's network throughput; an inventory without network
    cards knows links per pair only, so here it is T_j and the links bound the rest.
    """
    if layers_held > problem.model.num_layers:
        return 0.0
    return problem.profile_of(node_name).throughput_tokens_per_s(layers_held)


def shared_bytes_per_token(
    problem: Problem,
    shared: SharedBandwidth,
    source: str,
    target: str,
    *,
    members: Collection[str],
) -> float:
    """Bytes of a shared bandwidth that a token takes from `source` to `target`; 0 if none.

    `source` may be COORDINATOR or SOURCE, `target` COORDINATOR or SINK; `members` is
    `cluster.members_of(shared)`.
    """
    source_end = COORDINATOR if source in _COORDINATOR_ENDS else source
    target_end = COORDINATOR if target in _COORDINATOR_ENDS else target
    ours, theirs = (
        (source_end, target_end) if shared.direction == "egress" else (target_end, source_end)
    )
    if ours not in members or (shared.scope == "region" and theirs in members):
        return 0.0
    if COORDINATOR in (source_end, target_end):
        return problem.model.token_bytes
    return problem.model.activation_bytes_per_token


def check_cluster_can_hold_model(problem: Problem) -> None:
    """Raise ModelDoesNotFit when all nodes together hold fewer layers than the model has.

    A problem that passes may still be infeasible if few nodes have room for the model's ends.
    """
    needed = problem.model.num_layers
    limits = [layer_limits(problem, node.name) for node in problem.cluster.nodes]
    holdable = most_held(limits, num_layers=needed)
    if holdable >= needed:
        return
    missing = needed - holdable
    largest = max(profile.max_layers for profile in problem.compute_profiles.values())
    remedy = f"add nodes for {missing} more layers"
    if largest > 0:
        remedy += (
            f" ({-(-missing // largest)} of the largest profile would do), more memory per node,"
        )
    else:
        remedy += " with memory for at least one layer,"
    missing_bytes = missing * problem.model.bytes_per_layer
    raise ModelDoesNotFit(
        f"the cluster {problem.cluster.name!r} can hold {holdable} layers but model "
        f"{problem.model.name!r} has {needed}; {remedy} or choose a smaller model "
        f"(layers [{holdable}, {needed}) cannot be held: {bytes_text(missing_bytes)} of memory "
        "for weights are missing)"
    )


def coverage_tokens_per_s(problem: Problem, placement: Placement) -> list[float]:
    """Joint tokens/s of the nodes of each layer; each is a bound on the flow."""
    coverage = [0.0] * problem.model.num_layers
    for name, held in placement.layers.items():
        speed = throughput_tokens_per_s(problem, name, len(held))
        for layer in range(held.first, held.end):
            coverage[layer] += speed
    return coverage


def whole_components(problem: Problem, placement: Placement) -> Placement:
    """The components that can serve without the others: those that hold every layer."""
    return together(
        part for part in placement.parts if min(coverage_tokens_per_s(problem, part)) > 0
    )
