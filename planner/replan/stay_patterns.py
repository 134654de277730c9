"""Stages for a replanning: where they lie, who holds them, and who of these need not load anything.

Minimising what is loaded at a given flow is a cutting-stock problem whose items know their place.
A column is a stage at a place: all its nodes hold its layers, or (a nested stage) one or two hold
them all, and shorter stages beside them, one after the other, carry what they do not. Nodes that
are alike and hold the same layers now are one group. The cheapest column of every place is found
from the prices of layers and nodes, so columns are made as they pay off. Links count for nothing.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from planner.bounds.node_kinds import NodeKind, node_kinds
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_REACHES = 1 - 1e-12
_PAYS_OFF = 1e-6  # moved layers
# Of covers for one length: those of the fastest nodes, hence of the fewest, come first.
_MOST_COVERS = 400
# A node that carries less of the flow beside shorter stages is not worth a nested stage.
_LEAST_NESTED_SHARE = 0.01
_MOST_OUTER = 2
# Where kinds are many, nested stages are not made once so many covers are known (counted anew for
# every nested stage). The published 42 nodes need 14 000.
_MOST_COVERS_TOGETHER = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StayGroup:
    """Nodes of one kind that hold the same layers now; `held` is None where they hold nothing."""

    kind: int
    held: LayerRange | None
    names: tuple[str, ...]

    def layers_to_load(self, new: LayerRange) -> int:
        """How many of the layers a node of the group does not hold yet."""
        if self.held is None:
            return len(new)
        return len(new) - max(0, min(new.end, self.held.end) - max(new.first, self.held.first))


@dataclass(frozen=True, slots=True, kw_only=True)
class StayColumn:
    """`held` layers by nodes (by their groups, one entry each) that carry the flow over `range`."""

    range: LayerRange
    held: tuple[tuple[int, LayerRange], ...]
    layers_to_load: int

    @property
    def nodes_of_group(self) -> Counter[int]:
        return Counter(group for group, _ in self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What holding a layer gains and what a layer, a node of a group and a stage cost.

    All in layers to load.
    """

    value_of_layer: float
    of_layer: Floats
    of_group: Floats
    of_stage: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nested:
    """A cover that lacks something over `layers` layers, and covers (rows by length) of that."""

    outer_row: int
    layers: int
    rows: Mapping[int, Integers]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PricedLength:
    """Prices of covers C of one length at first layers S, and the order of each kind's nodes."""

    price_CS: Floats
    groups_of_kind: Mapping[int, tuple[Integers, Integers]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PricedNested:
    """The least price of a nested stage at first layers S, and what it consists of.

    `outer_row` is the cover of those that hold all. `came_by[e, s]`: the length of the shorter
    stage that ends e layers behind first layer s; `row_S` its cover, by length and first layer.
    """

    layers: int
    price_S: Floats
    outer_row: int
    came_by: Integers
    row_S: Mapping[int, Integers]


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
        self._target = target_tokens_per_s * _REACHES
        self._kinds = node_kinds(problem, rules=rules)
        self.groups = list(_groups(self._kinds, running, rules))
        self._free = [
            sum(len(group.names) for group in self.groups if group.kind == kind)
            for kind in range(len(self._kinds))
        ]
        self._known_loads: dict[tuple[int, int], Integers] = {}
        self._row_of: dict[int, dict[tuple[int, ...], int]] = {}
        self._num_covers = 0
        covers: dict[int, list[tuple[int, ...]]] = {}
        self._whole = self._rows_of(covers, self._target, longest=self.num_layers)
        may_nest = partial_inference and rules.max_hops is None
        self._nested = list(self._nested_stages(covers)) if may_nest else []
        self._covers_of = {
            layers: np.array(rows, dtype=np.int64) for layers, rows in covers.items() if rows
        }

    def cheapest_stages(self, prices: Prices) -> Iterator[StayColumn]:
        """For every place and length the stage that gains most, where any gains."""
        priced = self._all_priced(prices)
        for layers, rows in self._whole.items():
            gain_S = self._gains(layers, prices)
            price_S, row_S = _least(priced[layers], rows)
            for first in np.flatnonzero(gain_S - price_S > _PAYS_OFF):
                holders = self._holders(priced, int(row_S[first]), int(first), layers)
                yield self._column(int(first), layers, list(holders))

    def cheapest_nested(self, prices: Prices) -> Iterator[StayColumn]:
        """For every place and length the nested stage that gains most, where any gains."""
        priced = self._all_priced(prices)
        best: dict[int, list[_PricedNested]] = {}
        for nested in self._nested:
            best.setdefault(nested.layers, []).append(self._priced_nested(nested, priced, prices))
        for layers, alike in best.items():
            gain_S = self._gains(layers, prices)
            price_NS = np.array([one.price_S for one in alike])
            least = price_NS.argmin(axis=0)
            for first in np.flatnonzero(gain_S - price_NS.min(axis=0) > _PAYS_OFF):
                held = self._unnested(alike[least[first]], priced, int(first))
                column = self._column(int(first), layers, held)
                if all(
                    count <= len(self.groups[group].names)
                    for group, count in column.nodes_of_group.items()
                ):
                    yield column

    def _gains(self, layers: int, prices: Prices) -> Floats:
        """What so many layers are worth at each first layer, before their nodes are paid."""
        paid = np.concatenate(([0.0], np.cumsum(prices.of_layer)))
        gains: Floats = (
            prices.value_of_layer * layers - prices.of_stage - (paid[layers:] - paid[:-layers])
        )
        return gains

    def _priced_nested(
        self, nested: _Nested, priced: Mapping[int, _PricedLength], prices: Prices
    ) -> _PricedNested:
        """Shorter stages one after the other, by dynamic programming over where they end."""
        layers = nested.layers
        outer_S = priced[layers].price_CS[nested.outer_row]
        firsts = np.arange(len(outer_S))
        parts = {length: _least(priced[length], rows) for length, rows in nested.rows.items()}
        best = np.full((layers + 1, len(firsts)), math.inf)
        came_by = np.zeros((layers + 1, len(firsts)), dtype=np.int64)
        best[0] = 0.0
        for end in range(1, layers + 1):
            for length, (price_S, _) in parts.items():
                if length <= end:
                    through = best[end - length] + price_S[firsts + end - length]
                    better = through < best[end]
                    best[end][better], came_by[end][better] = through[better], length
        return _PricedNested(
            layers=layers,
            price_S=outer_S + best[layers],
            outer_row=nested.outer_row,
            came_by=came_by,
            row_S={length: row_S for length, (_, row_S) in parts.items()},
        )

    def _unnested(
        self, nested: _PricedNested, priced: Mapping[int, _PricedLength], first: int
    ) -> list[tuple[int, LayerRange]]:
        end = nested.layers
        held = list(self._holders(priced, nested.outer_row, first, end))
        while end > 0:
            length = int(nested.came_by[end][first])
            begin = first + end - length
            held.extend(self._holders(priced, int(nested.row_S[length][begin]), begin, length))
            end -= length
        return held

    def _all_priced(self, prices: Prices) -> dict[int, _PricedLength]:
        return {
            layers: self._priced(layers, covers, prices)
            for layers, covers in self._covers_of.items()
        }

    def _loads(self, group: int, layers: int) -> Integers:
        """The group's layers to load for a range of so many layers at each first layer."""
        known = self._known_loads.get((group, layers))
        if known is None:
            last = self.num_layers - layers
            known = np.array(
                [
                    self.groups[group].layers_to_load(LayerRange(first=first, end=first + layers))
                    for first in range(last + 1)
                ],
                dtype=np.int64,
            )
            self._known_loads[group, layers] = known
        return known

    def _priced(self, layers: int, covers_CK: Integers, prices: Prices) -> _PricedLength:
        firsts = np.arange(self.num_layers - layers + 1)
        price_CS = np.zeros((len(covers_CK), len(firsts)))
        order: dict[int, tuple[Integers, Integers]] = {}
        for kind in range(len(self._kinds)):
            most = int(covers_CK[:, kind].max())
            if most == 0:
                continue
            numbers = [n for n, group in enumerate(self.groups) if group.kind == kind]
            nodes: Integers = np.array(
                [n for n in numbers for _ in self.groups[n].names[:most]], dtype=np.int64
            )
            price_of = {n: prices.of_group[n] + self._loads(n, layers) for n in numbers}
            price_NS = np.array([price_of[int(n)] for n in nodes])
            order_NS = np.argsort(price_NS, axis=0, kind="stable")[:most]
            sums = np.cumsum(np.take_along_axis(price_NS, order_NS, axis=0), axis=0)
            price_CS += np.vstack((np.zeros((1, len(firsts))), sums))[covers_CK[:, kind]]
            order[kind] = nodes, order_NS
        return _PricedLength(price_CS=price_CS, groups_of_kind=order)

    def _holders(
        self, priced: Mapping[int, _PricedLength], row: int, first: int, layers: int
    ) -> Iterator[tuple[int, LayerRange]]:
        held = LayerRange(first=first, end=first + layers)
        for kind, count in enumerate(self._covers_of[layers][row]):
            if count:
                nodes, order_NS = priced[layers].groups_of_kind[kind]
                for group in nodes[order_NS[:count, first]]:
                    yield int(group), held

    def _column(
        self, first: int, layers: int, held: Sequence[tuple[int, LayerRange]]
    ) -> StayColumn:
        load = sum(self.groups[group].layers_to_load(part) for group, part in held)
        return StayColumn(
            range=LayerRange(first=first, end=first + layers),
            held=tuple(sorted(held, key=lambda one: (one[0], one[1].first, one[1].end))),
            layers_to_load=load,
        )

    def _rows_of(
        self, covers: dict[int, list[tuple[int, ...]]], flow: float, *, longest: int
    ) -> dict[int, Integers]:
        """The rows of `covers` that carry the flow, by length; adds those that are missing."""
        rows: dict[int, Integers] = {}
        lengths = {layers for kind in self._kinds for layers in kind.tokens_per_s}
        for layers in sorted(length for length in lengths if length <= longest):
            speeds = [kind.tokens_per_s.get(layers, 0.0) for kind in self._kinds]
            found = []
            for cover in least_covers(speeds, self._free, flow):
                found.append(self._row(covers, layers, cover))
                if len(found) == _MOST_COVERS:
                    break
            self._num_covers += len(found)
            if found:
                rows[layers] = np.array(found, dtype=np.int64)
        return rows

    def _nested_stages(self, covers: dict[int, list[tuple[int, ...]]]) -> Iterator[_Nested]:
        """Those of one node over all layers first."""
        longest = max((max(kind.tokens_per_s) for kind in self._kinds), default=0)
        for outer in few_nodes(self._free, most=_MOST_OUTER):
            for layers in range(2, longest + 1):
                if self._num_covers >= _MOST_COVERS_TOGETHER:
                    return
                speeds = [
                    kind.tokens_per_s.get(layers, 0.0)
                    for kind, count in zip(self._kinds, outer, strict=True)
                    for _ in range(count)
                ]
                carried = sum(speeds)
                if min(speeds) <= 0 or not (
                    _LEAST_NESTED_SHARE * self._target < carried < self._target
                ):
                    continue
                rows = self._rows_of(covers, self._target - carried, longest=layers - 1)
                if rows:
                    yield _Nested(
                        outer_row=self._row(covers, layers, outer), layers=layers, rows=rows
                    )

    def _row(
        self, covers: dict[int, list[tuple[int, ...]]], layers: int, cover: tuple[int, ...]
    ) -> int:
        """Its number among all covers of the length, which it joins if it is new."""
        row_of = self._row_of.setdefault(layers, {})
        if cover not in row_of:
            row_of[cover] = len(row_of)
            covers.setdefault(layers, []).append(cover)
        return row_of[cover]


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
    """How many nodes of each kind reach the flow and none of the slowest could stay away.

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


def _least(priced: _PricedLength, rows: Integers) -> tuple[Floats, Integers]:
    """The least price of the rows at each first layer, and whose it is."""
    price_RS = priced.price_CS[rows]
    best = price_RS.argmin(axis=0)
    return price_RS[best, np.arange(price_RS.shape[1])], rows[best]


def _groups(
    kinds: Sequence[NodeKind], running: Placement, rules: PlacementRules
) -> Iterator[StayGroup]:
    for number, kind in enumerate(kinds):
        names_by_held: dict[LayerRange | None, list[str]] = {}
        for name in kind.names:
            if name not in rules.pinned:
                names_by_held.setdefault(running.layers.get(name), []).append(name)
        for held, names in names_by_held.items():
            yield StayGroup(kind=number, held=held, names=tuple(names))
