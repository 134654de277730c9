"""The capacities of all links of a problem at once."""

from collections.abc import Sequence

import numpy as np

from planner.domain.cluster import COORDINATOR
from planner.domain.problem import Problem


def link_capacities_tokens_per_s(
    problem: Problem, ends: Sequence[str]
) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """capacities[i, k] from ends[i] to ends[k], as `capacity.link_capacity_tokens_per_s` has them.

    Pairs of regions first, then links given by name; 0 from an end to itself.
    """
    cluster, model = problem.cluster, problem.model
    number_of = {name: number for number, name in enumerate(ends)}
    in_region: dict[str, list[int]] = {}
    for number, name in enumerate(ends):
        in_region.setdefault(cluster.region_of(name), []).append(number)
    bandwidth = np.zeros((len(ends), len(ends)))
    for link in cluster.region_links:
        rows, columns = in_region.get(link.source, []), in_region.get(link.target, [])
        bandwidth[np.ix_(rows, columns)] = link.bandwidth_bytes_per_s
    for link in cluster.links:
        if link.source in number_of and link.target in number_of:
            bandwidth[number_of[link.source], number_of[link.target]] = link.bandwidth_bytes_per_s
    np.fill_diagonal(bandwidth, 0.0)
    bytes_per_token = np.full_like(bandwidth, model.activation_bytes_per_token)
    if COORDINATOR in number_of:
        bytes_per_token[number_of[COORDINATOR], :] = model.token_bytes
        bytes_per_token[:, number_of[COORDINATOR]] = model.token_bytes
    capacities: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = bandwidth / bytes_per_token
    return capacities
