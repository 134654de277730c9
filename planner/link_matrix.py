"""The capacities of all links of a problem, and what they share, at once."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from planner.domain.cluster import COORDINATOR, Cluster
from planner.domain.problem import Problem

Floats: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def link_capacities_tokens_per_s(problem: Problem, ends: Sequence[str]) -> Floats:
    """capacities[i, k] from ends[i] to ends[k]: bandwidth / bytes per token.

    Activations pass between nodes, tokens to and from the coordinator. 0 without a link and from an
    end to itself.
    """
    bandwidth, _ = links_between(problem.cluster, ends)
    return bandwidth / _bytes_per_token(problem, ends)


def links_between(cluster: Cluster, ends: Sequence[str]) -> tuple[Floats, Floats]:
    """Bandwidths in bytes/s, 0 without a link and from an end to itself, and latencies in seconds.

    Pairs of regions first, then links given by name.
    """
    number_of = {name: number for number, name in enumerate(ends)}
    in_region: dict[str, list[int]] = {}
    for number, name in enumerate(ends):
        in_region.setdefault(cluster.region_of(name), []).append(number)
    bandwidth, latency = (np.zeros((len(ends), len(ends))) for _ in range(2))
    for link in cluster.region_links:
        pairs = np.ix_(in_region.get(link.source, []), in_region.get(link.target, []))
        bandwidth[pairs], latency[pairs] = link.bandwidth_bytes_per_s, link.latency_s
    for link in cluster.links:
        if link.source in number_of and link.target in number_of:
            pair = number_of[link.source], number_of[link.target]
            bandwidth[pair], latency[pair] = link.bandwidth_bytes_per_s, link.latency_s
    np.fill_diagonal(bandwidth, 0.0)
    return bandwidth, latency


def shared_tokens_per_s(problem: Problem, ends: Sequence[str]) -> Floats:
    """[i, k]: the least shared bandwidth on the way from ends[i] to ends[k]; inf without any."""
    bandwidth = np.full((len(ends), len(ends)), np.inf)
    for shared in problem.cluster.shared:
        members = problem.cluster.members_of(shared)
        ours = np.array([end in members for end in ends])
        passes = np.repeat(ours[:, None], len(ends), axis=1)
        if shared.scope == "region":
            passes &= ~ours[None, :]
        if shared.direction == "ingress":
            passes = passes.T
        bandwidth[passes] = np.minimum(bandwidth[passes], shared.bandwidth_bytes_per_s)
    return bandwidth / _bytes_per_token(problem, ends)


def _bytes_per_token(problem: Problem, ends: Sequence[str]) -> Floats:
    is_coordinator = np.array([end == COORDINATOR for end in ends])
    sizes: Floats = np.where(
        is_coordinator[:, None] | is_coordinator[None, :],
        problem.model.token_bytes,
        problem.model.activation_bytes_per_token,
    )
    return sizes
