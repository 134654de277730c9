"""Stages for a replanning: their places, their nodes, and the nodes that need not load anything.

Minimising what is loaded at a given flow is a cutting-stock problem whose items know their place.
A column is a stage at a place: all its nodes hold its layers, or (a nested stage) one or two hold
them all, or each of two half of them, and shorter stages beside them, one after the other, carry
what they do not. Nodes that are alike and hold the same layers now are one group. The cheapest
column of every place is found from the prices of layers and nodes, so columns are made as they pay
off. Links count for nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from planner.bounds.node_kinds import node_kinds
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.replanning.stay_covers import CoverTable, few_nodes
from planner.replanning.stay_groups import Holder, StayColumn, in_order, stay_groups
from planner.replanning.stay_nested import Nested, PricedNested
from planner.replanning.stay_prices import PAYS_OFF, Loads, PricedLength, Prices
from planner.tuning.replanning import StayPatternsTuning as tuned

_REACHES = 1 - 1e-12


class StayPatterns:
    """The columns of one target flow around what runs."""

    def __init__(
        self,
        problem: Problem,
        running: Placement,
        *,
        rules: PlacementRules,
        partial_inference: bool,
        target_tokens_per_s: float,
    ) -> None:
        """Pinned nodes take no part. Stages nest if partial inference and any hops are allowed."""
        self.num_layers = problem.model.num_layers
        self.target_tokens_per_s = target_tokens_per_s * _REACHES
        self._kinds = node_kinds(problem, rules=rules)
        self.groups = list(stay_groups(self._kinds, running, rules))
        self._loads = Loads(self.groups, self._kinds, num_layers=self.num_layers)
        self._free = [
            sum(len(group.names) for group in self.groups if group.kind == kind)
            for kind in range(len(self._kinds))
        ]
        table = CoverTable(self._kinds, self._free)
        self._whole = table.rows_of(self.target_tokens_per_s, longest=self.num_layers)
        self._nested: dict[int, list[Nested]] = {}
        if partial_inference and rules.max_hops is None:
            for stage in self._nested_stages(table):
                self._nested.setdefault(stage.layers, []).append(stage)
        self._covers_of = table.by_length()

    def priced(self, prices: Prices) -> dict[int, PricedLength]:
        """All covers at the prices, by length."""
        return {
            layers: PricedLength(self._loads, covers_CK, prices, layers=layers)
            for layers, covers_CK in self._covers_of.items()
        }

    def cheapest_stages(
        self, prices: Prices, priced: dict[int, PricedLength]
    ) -> Iterator[StayColumn]:
        """For every place and length the stage that gains most, where any gains."""
        for layers, rows in self._whole.items():
            price_S, row_S = priced[layers].least(rows)
            for first in np.flatnonzero(prices.gains(layers) - price_S > PAYS_OFF).tolist():
                holders = priced[layers].holders(int(row_S[first]), first)
                yield self._column(first, layers, holders)

    def cheapest_nested(
        self, prices: Prices, priced: dict[int, PricedLength]
    ) -> Iterator[StayColumn]:
        """For every place and length a nested stage that gains, where any is found to gain."""
        nodes_of_group = [len(group.names) for group in self.groups]
        for layers, stages in self._nested.items():
            nested = PricedNested(
                stages, priced, num_layers=self.num_layers, nodes_of_group=nodes_of_group
            )
            for first, held in nested.cheapest(prices.gains(layers) - PAYS_OFF):
                yield self._column(first, layers, held)

    def _column(self, first: int, layers: int, held: Sequence[Holder]) -> StayColumn:
        carried: defaultdict[int, float] = defaultdict(float)
        for group, part in held:
            speed = self._kinds[self.groups[group].kind].tokens_per_s[len(part)]
            for layer in range(part.first, part.end):
                carried[layer] += speed
        return StayColumn(
            range=LayerRange(first=first, end=first + layers),
            held=in_order(held),
            layers_to_load=sum(part.beyond(self.groups[group].held) for group, part in held),
            tokens_per_s=min(carried.values()),
        )

    def _nested_stages(self, table: CoverTable) -> Iterator[Nested]:
        """Those of one node over all layers, or two nodes over half of them each, first."""
        target = self.target_tokens_per_s
        longest = max((max(kind.tokens_per_s) for kind in self._kinds), default=0)
        for outer in few_nodes(self._free, most=tuned.MOST_OUTER):
            for layers in range(2, longest + 1):
                if table.num_found >= tuned.MOST_COVERS_TOGETHER:
                    return
                speeds = [
                    kind.tokens_per_s.get(layers, 0.0)
                    for kind, count in zip(self._kinds, outer, strict=True)
                    for _ in range(count)
                ]
                carried = sum(speeds)
                if min(speeds) <= 0 or not tuned.LEAST_NESTED_SHARE * target < carried < target:
                    continue
                is_twice = sum(outer) == 1 and 2 * layers <= min(
                    tuned.LONGEST_TWICE, self.num_layers
                )
                times = (1, 2) if is_twice else (1,)
                rows = table.rows_of(target - carried, longest=times[-1] * layers - 1)
                row = table.row(layers, outer)
                for number in times:
                    shorter = {
                        length: of_length
                        for length, of_length in rows.items()
                        if length < number * layers
                    }
                    if shorter:
                        yield Nested(outer_row=row, outer_layers=layers, times=number, rows=shorter)
