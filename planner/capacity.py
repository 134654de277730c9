"""Capacities of nodes and links in tokens/s: the flow graph's edge capacities (Helix §4.3)."""

from collections.abc import Collection

from planner.domain.cluster import COORDINATOR, SINK, SOURCE, SharedBandwidth
from planner.domain.errors import PlannerError
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules

_COORDINATOR_ENDS = frozenset({COORDINATOR, SOURCE, SINK})


class ModelDoesNotFit(PlannerError):
    """The cluster's memory cannot hold every layer of the model once."""


def max_layers(problem: Problem, node_name: str) -> int:
    """Most layers a node may hold: its memory's limit, never more than the model has."""
    return min(problem.profile_of(node_name).max_layers, problem.model.num_layers)


def allowed_layers(problem: Problem, node_name: str, rules: PlacementRules) -> int:
    """Most layers a node may hold under the rules; 0 when it is excluded.

    A pinned node holds exactly its pin; what it could hold otherwise is returned all the same.
    """
    if node_name in rules.excluded_nodes:
        return 0
    limit = max_layers(problem, node_name)
    if rules.max_layers_per_node is not None:
        limit = min(limit, rules.max_layers_per_node)
    limit = min(limit, rules.max_layers_of.get(node_name, limit))
    kv_capacity = problem.profile_of(node_name).kv_capacity_token_layers
    with_kv_room = 0
    while with_kv_room < limit and kv_capacity[with_kv_room] >= rules.kv_reserve_tokens * (
        with_kv_room + 1
    ):
        with_kv_room += 1
    return with_kv_room


def throughput_tokens_per_s(problem: Problem, node_name: str, layers_held: int) -> float:
    """T_j of a node that holds j layers; 0 when it holds none or more than it can.

    The paper takes the minimum with the node's network throughput; an inventory without network
    cards knows links per pair only, so here it is T_j and the links bound the rest.
    """
    if layers_held > problem.model.num_layers:
        return 0.0
    return problem.profile_of(node_name).throughput_tokens_per_s(layers_held)


def link_capacity_tokens_per_s(problem: Problem, source: str, target: str) -> float:
    """Bandwidth / bytes per token: activations between nodes, tokens to and from the coordinator.

    `source` may be COORDINATOR or SOURCE, `target` COORDINATOR or SINK. 0 when there is no link.
    """
    from_coordinator = source in _COORDINATOR_ENDS
    to_coordinator = target in _COORDINATOR_ENDS
    link = problem.cluster.link_between(
        COORDINATOR if from_coordinator else source, COORDINATOR if to_coordinator else target
    )
    if link is None:
        return 0.0
    if from_coordinator or to_coordinator:
        return link.bandwidth_bytes_per_s / problem.model.token_bytes
    return link.bandwidth_bytes_per_s / problem.model.activation_bytes_per_token


def shared_bytes_per_token(
    problem: Problem,
    shared: SharedBandwidth,
    source: str,
    target: str,
    *,
    members: Collection[str],
) -> float:
    """Bytes of a shared bandwidth that a token takes from `source` to `target`; 0 if none.

    The ends are as for `link_capacity_tokens_per_s`; `members` is `cluster.members_of(shared)`.
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
    """Raises ModelDoesNotFit when all nodes together hold fewer layers than the model has."""
    needed = problem.model.num_layers
    holdable = sum(max_layers(problem, node.name) for node in problem.cluster.nodes)
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
        f"(layers [{holdable}, {needed}) cannot be held: {missing_bytes / 1e9:.3g} GB of memory "
        "for weights are missing)"
    )
