"""What shared bandwidth lets through: a bound on the flow of every placement, in tokens/s.

**One border.** Take a group of nodes whose way out and whose way in are both shared. A token runs
on nodes of the group only, on others only, or on both; then its activations cross the border at
least once, out or in. The first two have bounds of their own clusters, the third takes a token's
activations of either bandwidth. And all tokens leave the coordinator and return to it.

**All groups.** Let groups share all nodes out among them, at most E_R tokens/s leave R. A token
runs in one group only, at most A_R do in R, or leaves some group: F <= sum over R of E_R + A_R.
If no group holds the whole model, every A_R is 0 and even one E_R less is left. Each group R lacks
some layer; at the first layer z that a group, say Q, lacks, all flow is in the others, each of
which lacks z or a later layer: whatever flow it has at z leaves it on the way there, at most E_R.
So F <= sum of E_R over R != Q. Likewise, from the last layer that is lacked back, for what enters.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.bounds.group_bandwidth import group_bandwidths
from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.link_groups import LinkTable
from planner.domain.cluster import COORDINATOR, SharedBandwidth
from planner.domain.problem import Problem


def shared_bound_tokens_per_s(problem: Problem) -> float:
    """The least over all shared bandwidths and groupings; infinite where they prove nothing."""
    cluster = problem.cluster
    if not cluster.shared:
        return math.inf
    members_of = {share.name: cluster.members_of(share) for share in cluster.shared}
    bounds = [
        _coordinator_bound(problem, share, members_of[share.name]) for share in cluster.shared
    ]
    names = frozenset(node.name for node in cluster.nodes)
    for group, least in _least_of_groups(problem, members_of).items():
        crossing = sum(least.values()) / problem.model.activation_bytes_per_token
        if crossing < math.inf:
            bounds.append(
                crossing + _alone(problem, group, names) + _alone(problem, names - group, names)
            )
    links = LinkTable(problem)
    bounds += [_groups_bound(problem, links, groups) for groups in _groupings(problem, members_of)]
    return min(bounds)


def _least_of_groups(
    problem: Problem, members_of: Mapping[str, frozenset[str]]
) -> dict[frozenset[str], dict[str, float]]:
    """Least bytes/s out of and into each group of nodes that shares some bandwidth."""
    bandwidth: dict[frozenset[str], dict[str, float]] = {}
    for share in problem.cluster.shared:
        group = members_of[share.name] - {COORDINATOR}
        least = bandwidth.setdefault(group, {"egress": math.inf, "ingress": math.inf})
        least[share.direction] = min(least[share.direction], share.bandwidth_bytes_per_s)
    return bandwidth


def _groupings(
    problem: Problem, members_of: Mapping[str, frozenset[str]]
) -> Iterator[dict[str, list[str]]]:
    """The regions; and the groups that share, as far as they are disjoint, and the rest."""
    nodes = problem.cluster.nodes
    regions = problem.cluster.names_by(lambda node: node.region)
    if len(regions) > 1:
        yield regions
    left = {node.name for node in nodes}
    groups: dict[str, list[str]] = {}
    for share in problem.cluster.shared:
        group = members_of[share.name] - {COORDINATOR}
        if group and group <= left:
            groups[f"members of {share.name}"] = sorted(group)
            left -= group
    if left:
        groups["rest"] = sorted(left)
    if len(groups) > 1 and set(map(tuple, groups.values())) != set(map(tuple, regions.values())):
        yield groups


def _groups_bound(problem: Problem, links: LinkTable, groups: Mapping[str, list[str]]) -> float:
    names = frozenset(name for group in groups.values() for name in group)
    bandwidths = group_bandwidths(problem, groups)
    leaving, entering = [], []
    for group, members in groups.items():
        out, back = links.crossing_tokens_per_s(members)
        leaving.append(min(out, bandwidths[group].egress_tokens_per_s))
        entering.append(min(back, bandwidths[group].ingress_tokens_per_s))
    alone = [_alone(problem, frozenset(members), names) for members in groups.values()]
    if max(alone) > 0:
        return sum(alone) + min(sum(leaving), sum(entering))
    return min(sum(leaving) - min(leaving), sum(entering) - min(entering))


def _coordinator_bound(problem: Problem, share: SharedBandwidth, members: frozenset[str]) -> float:
    """Bound by bandwidth that the coordinator's links share: every token passes it."""
    passes = COORDINATOR in members and (share.scope == "nic" or len(members) == 1)
    return share.bandwidth_bytes_per_s / problem.model.token_bytes if passes else math.inf


def _alone(problem: Problem, names: frozenset[str], everyone: frozenset[str]) -> float:
    if not names:
        return 0.0
    return knapsack_bound_tokens_per_s(
        replace(problem, cluster=problem.cluster.without(everyone - names))
    )
