"""What shared bandwidth lets through: a bound on the flow of every placement, in tokens/s.

Take a group of nodes whose way out and whose way in are both shared. A token runs on nodes of the
group only, on others only, or on both; then its activations cross the border at least once, out or
in. The first two have bounds of their own clusters, the third takes a token's activations of
either bandwidth. And all tokens leave the coordinator and return to it.
"""

import math
from dataclasses import replace

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.cluster import COORDINATOR, SharedBandwidth
from planner.domain.problem import Problem


def shared_bound_tokens_per_s(problem: Problem) -> float:
    """The least over all shared bandwidths; infinite where they prove nothing."""
    cluster = problem.cluster
    members_of = {share.name: cluster.members_of(share) for share in cluster.shared}
    bounds = [
        _coordinator_bound(problem, share, members_of[share.name]) for share in cluster.shared
    ]
    bandwidth: dict[frozenset[str], dict[str, float]] = {}
    for share in cluster.shared:
        group = members_of[share.name] - {COORDINATOR}
        least = bandwidth.setdefault(group, {"egress": math.inf, "ingress": math.inf})
        least[share.direction] = min(least[share.direction], share.bandwidth_bytes_per_s)
    names = frozenset(node.name for node in cluster.nodes)
    for group, least in bandwidth.items():
        crossing = sum(least.values()) / problem.model.activation_bytes_per_token
        if crossing < math.inf:
            bounds.append(
                crossing + _alone(problem, group, names) + _alone(problem, names - group, names)
            )
    return min(bounds, default=math.inf)


def _coordinator_bound(problem: Problem, share: SharedBandwidth, members: frozenset[str]) -> float:
    """Every token passes what the coordinator's own ways in and out share."""
    passes = COORDINATOR in members and (share.scope == "nic" or len(members) == 1)
    return share.bandwidth_bytes_per_s / problem.model.token_bytes if passes else math.inf


def _alone(problem: Problem, names: frozenset[str], everyone: frozenset[str]) -> float:
    if not names:
        return 0.0
    return knapsack_bound_tokens_per_s(
        replace(problem, cluster=problem.cluster.without(everyone - names))
    )
