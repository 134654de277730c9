"""Groups of nodes with slow links between them, and what such links can carry together."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from planner.bounds.group_bandwidth import group_bandwidths
from planner.domain.cluster import COORDINATOR
from planner.domain.problem import Problem
from planner.link_matrix import link_capacities_tokens_per_s, links_between
from planner.tuning.flow import LinkGroupsTuning as tuned

Floats = npt.NDArray[np.float64]


class LinkTable:
    """Capacities in tokens/s of every link between nodes; row is the source, column the target."""

    def __init__(self, problem: Problem) -> None:
        nodes = problem.cluster.nodes
        self.names = [node.name for node in nodes]
        self.number_of = {name: number for number, name in enumerate(self.names)}
        bandwidth, _ = links_between(problem.cluster, self.names)
        self.tokens_per_s: Floats = bandwidth * (1.0 / problem.model.activation_bytes_per_token)

    def usable_tokens_per_s(self, problem: Problem) -> dict[str, float]:
        """Bound on each node's flow: the bandwidth of all its links, in and out."""
        entering, leaving = self.tokens_per_s.sum(axis=0), self.tokens_per_s.sum(axis=1)
        shares = group_bandwidths(problem, {name: (name,) for name in self.names})
        capacities = link_capacities_tokens_per_s(problem, [*self.names, COORDINATOR])
        return {
            name: min(
                min(float(entering[number]), shares[name].ingress_tokens_per_s)
                + float(capacities[-1, number]),
                min(float(leaving[number]), shares[name].egress_tokens_per_s)
                + float(capacities[number, -1]),
            )
            for number, name in enumerate(self.names)
        }

    def crossing_tokens_per_s(self, members: Collection[str]) -> tuple[float, float]:
        """Joint capacity of all links out of a group of nodes, and of all links into it."""
        inside = np.zeros(len(self.names), dtype=np.bool_)
        inside[[self.number_of[name] for name in members]] = True
        out = float(self.tokens_per_s[np.ix_(inside, ~inside)].sum())
        return out, float(self.tokens_per_s[np.ix_(~inside, inside)].sum())

    def fewest_links(self, source: list[str], target: list[str], flow: float) -> float:
        """Least number of links from `source` to `target` that carry the flow; inf if none do."""
        rows = [self.number_of[name] for name in source]
        columns = [self.number_of[name] for name in target]
        fastest_first = np.sort(self.tokens_per_s[np.ix_(rows, columns)], axis=None)[::-1]
        together = np.cumsum(fastest_first)
        if together.size == 0 or together[-1] < flow:
            return float("inf")
        return float(np.searchsorted(together, flow * (1 - 1e-9)) + 1)


def link_groups(problem: Problem, links: LinkTable) -> dict[str, str]:
    """node -> group: its region, or, in a cluster of one region, what fast links join.

    Links are fast above the largest jump (fourfold at least) between the capacities that occur; one
    group where there is no jump. A bound is valid for any grouping, only not as tight.
    """
    regions = {node.name: node.region for node in problem.cluster.nodes}
    if len(set(regions.values())) > 1:
        return regions
    capacities = np.unique(links.tokens_per_s[links.tokens_per_s > 0])
    if capacities.size < 2:
        return regions
    jumps = capacities[1:] / capacities[:-1]
    widest = int(jumps.argmax())
    if jumps[widest] < tuned.LEAST_JUMP:
        return regions
    return _joined(links, at_least=float(capacities[widest + 1]))


def _joined(links: LinkTable, *, at_least: float) -> dict[str, str]:
    """Connected components, in either direction; each is called after its first node."""
    fast = links.tokens_per_s >= at_least
    fast = fast | fast.T
    group: dict[int, int] = {}
    for number in range(len(links.names)):
        if number in group:
            continue
        waiting = [number]
        group[number] = number
        while waiting:
            for other in np.flatnonzero(fast[waiting.pop()]).tolist():
                if other not in group:
                    group[other] = number
                    waiting.append(other)
    return {links.names[number]: links.names[first] for number, first in group.items()}
