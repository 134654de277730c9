"""Covers: how many nodes of each kind carry a flow together, all over the same layers."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from planner.bounds.node_kinds import NodeKind
from planner.tuning.replanning import StayCoversTuning as tuned

Integers = npt.NDArray[np.int64]


class CoverTable:
    """All covers of a search, by how many layers they hold; a row each, so that prices are arrays.

    `num_found` counts a cover once for each flow that it was found for.
    """

    def __init__(self, kinds: Sequence[NodeKind], free: Sequence[int]) -> None:
        """`free`: the nodes of each kind that there are."""
        self._kinds = kinds
        self._free = free
        self._row_of: dict[int, dict[tuple[int, ...], int]] = {}
        self.num_found = 0

    def rows_of(self, flow: float, *, longest: int) -> dict[int, Integers]:
        """The rows that carry the flow in tokens/s, by length; adds those that are missing."""
        rows: dict[int, Integers] = {}
        lengths = {layers for kind in self._kinds for layers in kind.tokens_per_s}
        for layers in sorted(length for length in lengths if length <= longest):
            speeds = [kind.tokens_per_s.get(layers, 0.0) for kind in self._kinds]
            found: list[int] = []
            for cover in least_covers(speeds, self._free, flow):
                found.append(self.row(layers, cover))
                if len(found) == tuned.MOST_COVERS:
                    break
            self.num_found += len(found)
            if found:
                rows[layers] = np.array(found, dtype=np.int64)
        return rows

    def row(self, layers: int, cover: tuple[int, ...]) -> int:
        """The cover's number among all of its length; added if it is new."""
        row_of = self._row_of.setdefault(layers, {})
        return row_of.setdefault(cover, len(row_of))

    def by_length(self) -> dict[int, Integers]:
        """Nodes of each kind K, by row C, for each length."""
        return {
            layers: np.array(list(row_of), dtype=np.int64)
            for layers, row_of in self._row_of.items()
        }


def few_nodes(counts: Sequence[int], *, most: int) -> Iterator[tuple[int, ...]]:
    """All choices of one to `most` nodes, by how many of each kind."""
    kinds = [kind for kind, count in enumerate(counts) if count]
    for size in range(1, most + 1):
        for chosen in combinations_with_replacement(kinds, size):
            number_of = Counter(chosen)
            if all(number_of[kind] <= counts[kind] for kind in number_of):
                yield tuple(number_of[kind] for kind in range(len(counts)))


def least_covers(
    speeds: Sequence[float], counts: Sequence[int], flow: float
) -> Iterator[tuple[int, ...]]:
    """Minimal covers: numbers of nodes of each kind that reach the flow and need every node.

    Covers by the fastest kinds come first.
    """
    order = sorted((k for k, s in enumerate(speeds) if s > 0), key=lambda k: -speeds[k])
    chosen = [0] * len(speeds)
    left = [0.0]  # what all kinds from a position on carry together
    for kind in reversed(order):
        left.insert(0, left[0] + speeds[kind] * counts[kind])

    def extend(position: int, missing: float) -> Iterator[tuple[int, ...]]:
        if position == len(order) or missing > left[position]:
            return
        kind = order[position]
        needed = math.ceil(missing / speeds[kind])
        if needed <= counts[kind]:
            chosen[kind] = needed
            yield tuple(chosen)
        for count in range(min(needed - 1, counts[kind]), -1, -1):
            chosen[kind] = count
            yield from extend(position + 1, missing - count * speeds[kind])
        chosen[kind] = 0

    yield from extend(0, flow)
