"""Nested stages: few nodes hold all layers, and shorter stages, one after the other, lie beside.

The shorter ones carry what the few do not. Instead of one node that holds all layers two of a kind
may each hold half of them; a shorter stage may then reach from one half into the other. The
shorter stages' cheapest succession is found by dynamic
programming over where one ends, for every place and for all nested stages of a length at once.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.replanning.stay_covers import Integers
from planner.replanning.stay_groups import Holder
from planner.replanning.stay_prices import Floats, PricedLength
from planner.tuning.replanning import StayNestedTuning as tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """A cover that lacks something, `times` times on end, and covers (rows by length) of that.

    The cover holds `outer_layers` layers each time.
    """

    outer_row: int
    outer_layers: int
    times: int
    rows: Mapping[int, Integers]

    @property
    def layers(self) -> int:
        return self.times * self.outer_layers


class PricedNested:
    """All nested stages N of one length, priced at first layers S.

    `_came_by[e, n, s]`: how long the shorter stage is that ends e layers behind first layer s.
    """

    def __init__(
        self,
        stages: Sequence[Nested],
        priced: Mapping[int, PricedLength],
        *,
        num_layers: int,
        nodes_of_group: Sequence[int],
    ) -> None:
        self._stages = stages
        self._nodes_of_group = nodes_of_group
        self._priced = priced
        self._layers = layers = stages[0].layers
        firsts = num_layers - layers + 1
        price_NS = np.zeros((len(stages), firsts))
        for number, stage in enumerate(stages):
            outer_S = priced[stage.outer_layers].price_CS[stage.outer_row]
            for begin in range(0, layers, stage.outer_layers):
                price_NS[number] += outer_S[begin : begin + firsts]
        self._row_NS: dict[int, Integers] = {}
        parts: dict[int, Floats] = {}
        for length in sorted({length for stage in stages for length in stage.rows}):
            shape = len(stages), priced[length].price_CS.shape[1]
            parts[length] = np.full(shape, math.inf)
            self._row_NS[length] = np.zeros(shape, dtype=np.int64)
            for number, stage in enumerate(stages):
                if length in stage.rows:
                    least, rows = priced[length].least(stage.rows[length])
                    parts[length][number], self._row_NS[length][number] = least, rows
        best = np.full((layers + 1, *price_NS.shape), math.inf)
        best[0] = 0.0
        self._came_by: npt.NDArray[np.int64] = np.zeros(best.shape, dtype=np.int64)
        for end in range(1, layers + 1):
            for length, part in parts.items():
                begin = end - length
                if begin >= 0:
                    through = best[begin] + part[:, begin : begin + firsts]
                    better = through < best[end]
                    np.copyto(best[end], through, where=better)
                    self._came_by[end][better] = length
        self.price_NS: Floats = price_NS + best[layers]

    def cheapest(self, most_S: Floats) -> Iterator[tuple[int, list[Holder]]]:
        """(first layer, holders) of the best that costs less than that there, where any does.

        Prices know no node twice, so where one would hold two of the stages others are taken.
        """
        for first in np.flatnonzero(self.price_NS.min(axis=0) < most_S).tolist():
            for number in np.argsort(self.price_NS[:, first], kind="stable")[
                : tuned.MOST_TRIED
            ].tolist():
                if self.price_NS[number, first] >= most_S[first]:
                    break
                price, held = self._held(number, first)
                if price < most_S[first]:
                    yield first, held
                    break

    def _held(self, number: int, first: int) -> tuple[float, list[Holder]]:
        """The price and the holders: an infinite price if there are not nodes for all."""
        stage = self._stages[number]
        held: list[Holder] = []
        for begin in range(first, first + self._layers, stage.outer_layers):
            held += self._priced[stage.outer_layers].holders(stage.outer_row, begin)
        for length, begin in self._parts(number, first):
            row = int(self._row_NS[length][number, begin])
            held += self._priced[length].holders(row, begin)
        if self._have_nodes(held):
            return float(self.price_NS[number, first]), held
        return self._held_apart(number, first)

    def _held_apart(self, number: int, first: int) -> tuple[float, list[Holder]]:
        """As `_held`, each stage choosing from the nodes that those before it leave."""
        stage = self._stages[number]
        outer_rows = np.array([stage.outer_row])
        outer = [
            (stage.outer_layers, begin, outer_rows)
            for begin in range(first, first + self._layers, stage.outer_layers)
        ]
        parts = [
            (length, begin, stage.rows[length]) for length, begin in self._parts(number, first)
        ]
        price, held = 0.0, list[Holder]()
        taken: Counter[int] = Counter()
        for length, begin, rows in outer + parts:
            part_price, part = self._priced[length].holders_beside(taken, rows, begin)
            price += part_price
            if price == math.inf:
                break
            held += part
            taken.update(group for group, _ in part)
        return price, held

    def _parts(self, number: int, first: int) -> Iterator[tuple[int, int]]:
        """(layers, first layer) of the shorter stages, the last one first."""
        end = self._layers
        while end > 0:
            length = int(self._came_by[end, number, first])
            end -= length
            yield length, first + end

    def _have_nodes(self, held: Sequence[Holder]) -> bool:
        taken = Counter(group for group, _ in held)
        return all(count <= self._nodes_of_group[group] for group, count in taken.items())
