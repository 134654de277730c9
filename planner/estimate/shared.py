"""Bandwidth that links share, as the fixed point sees it: how much of it others take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.domain.cluster import COORDINATOR, Cluster

Reals = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLinks:
    """The S shared bandwidths of M ends: nodes, and the coordinator last.

    What leaves end i may take those of `leaving` from `leaving_start_M1[i]` to the next, what
    reaches it those of `reaching`. `is_card_S` is 1 where members' links to each other count too.
    """

    bandwidth_S: Reals
    is_card_S: Numbers
    member_SM: Numbers
    leaving_start_M1: Numbers
    leaving: Numbers
    reaching_start_M1: Numbers
    reaching: Numbers

    @classmethod
    def of(cls, cluster: Cluster, names: Sequence[str]) -> "SharedLinks":
        """`names` are nodes, without the coordinator."""
        ends = [*names, COORDINATOR]
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
        leaving_start_M1, leaving = _rows(sides["egress"])
        reaching_start_M1, reaching = _rows(sides["ingress"])
        return cls(
            bandwidth_S=np.array([shared.bandwidth_bytes_per_s for shared in cluster.shared]),
            is_card_S=np.array(
                [shared.scope == "nic" for shared in cluster.shared], dtype=np.int64
            ),
            member_SM=member_SM,
            leaving_start_M1=leaving_start_M1,
            leaving=leaving,
            reaching_start_M1=reaching_start_M1,
            reaching=reaching,
        )

    def taken_by(self, tail: int, head: int) -> list[int]:
        """The shared bandwidths that the link from end `tail` to end `head` takes."""
        taken: list[int] = []
        for starts, numbers, here, there in (
            (self.leaving_start_M1, self.leaving, tail, head),
            (self.reaching_start_M1, self.reaching, head, tail),
        ):
            taken += [
                number
                for number in numbers[starts[here] : starts[here + 1]].tolist()
                if self.is_card_S[number] or not self.member_SM[number, there]
            ]
        return taken

    def crowding(
        self, tails: Sequence[int], heads: Sequence[int], bytes_E: Sequence[float]
    ) -> tuple[list[float], list[float]]:
        """Of connections by their ends: (bytes/s that one may have, seconds that others take).

        `bytes_E` and the seconds are per token of output of the whole component: at X tokens/s a
        share of X times the seconds of that bandwidth is others'.
        """
        if not len(self.bandwidth_S):
            return [math.inf] * len(bytes_E), [0.0] * len(bytes_E)
        taken_E = [self.taken_by(tail, head) for tail, head in zip(tails, heads, strict=True)]
        carried_S = [0.0] * len(self.bandwidth_S)
        for taken, size in zip(taken_E, bytes_E, strict=True):
            for number in taken:
                carried_S[number] += size
        most_E, crowding_E = [], []
        for taken, size in zip(taken_E, bytes_E, strict=True):
            most, crowding = math.inf, 0.0
            for number in taken:
                bandwidth = float(self.bandwidth_S[number])
                most = min(most, bandwidth)
                crowding = max(crowding, (carried_S[number] - size) / bandwidth)
            most_E.append(most)
            crowding_E.append(crowding)
        return most_E, crowding_E


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Numbers, Numbers]:
    """(where each row starts, all rows in a row)."""
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return starts, np.array([number for row in rows for number in row], dtype=np.int64)
