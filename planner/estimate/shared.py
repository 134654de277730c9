"""Links of nodes in the form of the compiled loops, with shared bandwidths."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.domain.cluster import COORDINATOR
from planner.domain.problem import Problem
from planner.link_matrix import links_between
from planner.native import Packed
from planner.timing import hop_s

Reals = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


class Links:
    """The links between M ends, nodes and the coordinator last, and S shared bandwidths.

    `packed` is C's `Links`. Where there is no link, `bandwidth_MM` is 0; `latency_MM` is that of
    `planner.timing.latency_s`. What leaves end i may take those shared bandwidths of `leaving` from
    `leaving_start[i]` to the next, what reaches it those of `reaching`. `is_card` is 1 where
    members' links to each other count too.
    """

    def __init__(self, problem: Problem, names: Sequence[str]) -> None:
        """`names` are nodes, without the coordinator."""
        cluster, ends = problem.cluster, [*names, COORDINATOR]
        self.bandwidth_MM, self.latency_MM = links_between(cluster, ends)
        hops = np.array([hop_s(problem, name) for name in names])
        self.latency_MM[:-1, :-1] += (hops[:, None] + hops) / 2
        self.latency_MM[:-1, -1] += hops
        self.latency_MM[-1, :-1] += hops
        place = {name: number for number, name in enumerate(ends)}
        member_SM = np.zeros((len(cluster.shared), len(ends)), dtype=np.int64)
        sides: dict[str, list[list[int]]] = {
            "egress": [[] for _ in ends],
            "ingress": [[] for _ in ends],
        }
        for number, shared in enumerate(cluster.shared):
            for name in sorted(cluster.members_of(shared) & place.keys()):
                member_SM[number, place[name]] = 1
                sides[shared.direction][place[name]].append(number)
        leaving_start, leaving = _rows(sides["egress"])
        reaching_start, reaching = _rows(sides["ingress"])
        self.num_shares = len(cluster.shared)
        self.packed = Packed(
            nodes=len(names),
            shares=self.num_shares,
            bandwidth=self.bandwidth_MM,
            latency=self.latency_MM,
            share_bandwidth=np.array(
                [shared.bandwidth_bytes_per_s for shared in cluster.shared], dtype=np.float64
            ),
            is_card=np.array([shared.scope == "nic" for shared in cluster.shared], dtype=np.int64),
            member=member_SM,
            leaving_start=leaving_start,
            leaving=leaving,
            reaching_start=reaching_start,
            reaching=reaching,
        )


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Numbers, Numbers]:
    """(where each row starts, all rows in a row)."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return starts, np.array([number for row in rows for number in row], dtype=np.int64)
