"""Bandwidth shared by all traffic out of, or into, a group of nodes, in tokens/s of activations."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from planner.domain.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBandwidth:
    """No more tokens/s than that leave the group for other nodes, or enter it from them."""

    egress_tokens_per_s: float
    ingress_tokens_per_s: float


def group_bandwidths(
    problem: Problem, members: Mapping[str, Collection[str]]
) -> dict[str, GroupBandwidth]:
    """The least shared bandwidth of each of some disjoint groups; infinite where none is shared.

    One counts for a group if all of the group are members: with scope "nic" always, with scope
    "region" only if no other node is, as what members send each other passes free.
    """
    cluster = problem.cluster
    group_of = {name: group for group, names in members.items() for name in names}
    least = {group: {"egress": math.inf, "ingress": math.inf} for group in members}
    for share in cluster.shared:
        sharing = [name for name in cluster.members_of(share) if cluster.has_node(name)]
        tokens_per_s = share.bandwidth_bytes_per_s / problem.model.activation_bytes_per_token
        counts = Counter(group_of[name] for name in sharing if name in group_of)
        for group, count in counts.items():
            is_whole = count == len(members[group])
            if is_whole and (share.scope == "nic" or count == len(sharing)):
                ways = least[group]
                ways[share.direction] = min(ways[share.direction], tokens_per_s)
    return {
        group: GroupBandwidth(
            egress_tokens_per_s=ways["egress"], ingress_tokens_per_s=ways["ingress"]
        )
        for group, ways in least.items()
    }
