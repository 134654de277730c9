"""The crossing bound B3: the pattern bound, and every change between groups paid for in links.

Nodes are in groups (regions, say) with slow links between them. **Statement**, for a placement with
flow F, whatever the grouping, with or without partial inference:

* A layer is *pure* in group R when all flow is computed in R there, else *mixed*. A pure layer is
  covered by R's nodes alone; a mixed one has at least one item of each of two groups.
* Let V be the groups with pure layers. Maximal runs of consecutive layers pure in one group are at
  least |V|, so at least |V| - 1 gaps lie between them. A gap either has a mixed layer of its own or
  is *direct*: layer l - 1 is pure in R, layer l in R'. No node then passes flow from l - 1 to l
  inside, so F crosses links from R's nodes on l - 1 to those of R' on l. Of a and b nodes there are
  a * b such links; they carry at most the a * b fastest, so a * b >= k(R, R', F), the least number
  of links that carry F. Wide covers cost more: speed beyond F is bought.
* R's pure layers are at most cap(R), the pattern bound's number of layers of R's nodes alone.
* Every layer ends at most one direct gap, and begins at most one.

So a placement with flow F gives a point of this linear program with sum y = L (y: covers of layers
by kind; v: whether a group is in V; d: direct gaps by width class; m: mixed gaps), where a width
class [low, high) prices a cover as of `low` nodes and lets it cross as of `high - 1`. A gap counts
with the least classes that let it cross:

    sum of items / j * y <= nodes of the kind            sum_R v_R - d - m <= 1
    pure layers of R <= cap(R) * v_R                     m <= mixed layers
    direct gaps out of R from class c up <= layers of R from class c up; so for gaps into R

When its optimum is below L, F is impossible. The proof is a Lagrangian one: whatever prices the
rows have, `sum price * limit + what static columns gain + L * (what the best cover gains) < L`
suffices, so neither an unfinished column generation nor rounding can make it wrong.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from planner.bounds.cover import CoverTable, Floats, Integers, cheapest_covers
from planner.bounds.link_groups import LinkTable
from planner.bounds.node_kinds import NodeKind, undominated_items
from planner.bounds.packing_program import PackingProgram
from planner.bounds.pattern import most_layers, units_rounded_up
from planner.tuning.flow import CrossingBoundTuning as tuned

_GAINS = 1e-9
_PROOF_RELATIVE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class _Static:
    """A column that is not a cover: its use of rows, and an upper limit it always obeys."""

    use: Mapping[int, float]
    upper: float


def crossing_bounds_tokens_per_s(
    kinds: list[NodeKind],
    links: LinkTable,
    *,
    num_layers: int,
    known_bound_tokens_per_s: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[float]:
    """Ever tighter bounds below the known one; none where changing groups costs nothing.

    `should_stop` is asked every second or so; True ends the search for more.

    `kinds` carry their groups. Bisection: possible flows from below, impossible ones from above.
    """
    if len({kind.group for kind in kinds}) < 2:
        return
    high, step = known_bound_tokens_per_s, tuned.FIRST_STEP
    low = 0.0
    for _ in range(tuned.BISECTIONS):
        target = high * (1 - step) if low <= 0 else (low + high) / 2
        if target <= 0 or high - low <= tuned.LEAST_STEP * high:
            return
        if should_stop():
            return
        crossing = _Crossing(kinds, links, num_layers=num_layers, flow=target)
        if crossing.is_impossible(should_stop):
            high = target
            yield high
            step = min(4 * step, 0.5)
        elif high == known_bound_tokens_per_s:
            return  # the links cost less than the first step, if anything
        else:
            low = target


class _Crossing:
    """The program for one flow."""

    def __init__(
        self, kinds: list[NodeKind], links: LinkTable, *, num_layers: int, flow: float
    ) -> None:
        self._num_layers = num_layers
        self._kinds = kinds
        self._groups = sorted({kind.group for kind in kinds})
        self._items = undominated_items(kinds, enough_tokens_per_s=flow)
        self._units = units_rounded_up(self._items, unit_tokens_per_s=flow / tuned.UNITS)
        self._kind_of: Integers = np.array([item.kind for item in self._items], dtype=np.int64)
        self._layers: Integers = np.array([item.layers for item in self._items], dtype=np.int64)
        group_number = {group: number for number, group in enumerate(self._groups)}
        self._group_of: Integers = np.array(
            [group_number[kinds[item.kind].group] for item in self._items], dtype=np.int64
        )
        self._limits = [float(kind.count) for kind in kinds]
        self._static: list[_Static] = []
        self._declare_rows()
        self._declare_static(links, flow)
        self._static_use: Floats = np.zeros((len(self._static), len(self._limits)))
        for number, column in enumerate(self._static):
            self._static_use[number, list(column.use)] = list(column.use.values())
        self._program = PackingProgram(self._limits)
        for column in self._static:
            self._program.add_column(column.use, value=0.0, upper=column.upper)

    def is_impossible(self, should_stop: Callable[[], bool]) -> bool:
        """True is proven; False may also mean that the search for a proof was given up."""
        uppers = np.array([column.upper for column in self._static])
        rounds = min(tuned.MAX_ROUNDS, tuned.MAX_PAIRS_PRICED // len(self._items) ** 2)
        for _ in range(rounds):
            if should_stop():
                return False
            solution = self._program.solve()
            best_gain, has_fresh = self._add_covers(solution.row_prices)
            bound = float(solution.row_prices @ np.array(self._limits))
            bound += float(np.maximum(0.0, -self._static_use @ solution.row_prices) @ uppers)
            needed = self._num_layers * (1 - _PROOF_RELATIVE_TOLERANCE)
            if bound + self._num_layers * max(0.0, best_gain) < needed:
                return True
            if solution.value >= needed or not has_fresh:
                return False
        return False

    def _row(self, limit: float) -> int:
        self._limits.append(limit)
        return len(self._limits) - 1

    def _declare_rows(self) -> None:
        classes = range(len(tuned.WIDTH_CLASSES))
        groups = range(len(self._groups))
        self._gaps_row = self._row(1.0)
        self._mixed_row = self._row(0.0)
        self._pure_row = [self._row(0.0) for _ in groups]
        self._out_row = [[self._row(0.0) for _ in classes] for _ in groups]
        self._in_row = [[self._row(0.0) for _ in classes] for _ in groups]

    def _declare_static(self, links: LinkTable, flow: float) -> None:
        names: list[list[str]] = [[] for _ in self._groups]
        number_of = {group: number for number, group in enumerate(self._groups)}
        for kind in self._kinds:
            names[number_of[kind.group]].extend(kind.names)
        most = float(self._num_layers)
        for number, group in enumerate(self._groups):
            own = [kind for kind in self._kinds if kind.group == group]
            cap = min(most, most_layers(own, flow=flow))
            use = {self._pure_row[number]: -cap, self._gaps_row: 1.0}
            self._static.append(_Static(use=use, upper=1.0))
        self._static.append(_Static(use={self._gaps_row: -1.0, self._mixed_row: 1.0}, upper=most))
        for source, target in permutations(range(len(self._groups)), 2):
            needed = links.fewest_links(names[source], names[target], flow)
            for out_class, in_class in _least_classes(needed):
                use = {self._gaps_row: -1.0}
                use |= dict.fromkeys(self._out_row[source][: out_class + 1], 1.0)
                use |= dict.fromkeys(self._in_row[target][: in_class + 1], 1.0)
                self._static.append(_Static(use=use, upper=most))

    def _add_covers(self, row_prices: Floats) -> tuple[float, bool]:
        """Adds the best covers; returns the largest gain of any and whether any is new.

        Mixed covers first: as long as one gains, the others need not be asked for a proof.
        """
        prices = row_prices[self._kind_of] / self._layers
        best_gain, has_fresh = self._add_mixed(prices, float(row_prices[self._mixed_row]))
        if best_gain > _GAINS and has_fresh:
            return math.inf, True
        for number in range(len(self._groups)):
            own = np.flatnonzero(self._group_of == number)
            if own.size == 0:
                continue
            covers = cheapest_covers(
                prices[own],
                self._units[own],
                target_units=tuned.UNITS,
                at_least=tuned.WIDTH_CLASSES[-1],
            )
            for width_class, width in enumerate(tuned.WIDTH_CLASSES):
                rows = {self._pure_row[number]: 1.0}
                rows |= dict.fromkeys(self._out_row[number][: width_class + 1], -1.0)
                rows |= dict.fromkeys(self._in_row[number][: width_class + 1], -1.0)
                gain = 1.0 - float(covers.price_of[width, tuned.UNITS])
                gain -= sum(row_prices[row] * use for row, use in rows.items())
                best_gain = max(best_gain, gain)
                if gain > _GAINS:
                    chosen = covers.items_of(units=tuned.UNITS, at_least=width)
                    cover = Counter({int(own[item]): count for item, count in chosen.items()})
                    has_fresh |= self._add(number, width_class, cover, rows)
        return best_gain, has_fresh

    def _add_mixed(self, prices: Floats, mixed_price: float) -> tuple[float, bool]:
        """Add each group's cheapest cover with an item of another: two of these, then any."""
        anything: CoverTable = cheapest_covers(prices, self._units, target_units=tuned.UNITS)
        left = np.maximum(0, tuned.UNITS - self._units[:, None] - self._units[None, :])
        total = prices[:, None] + prices[None, :] + anything.price_of[0][left]
        total[self._group_of[:, None] == self._group_of[None, :]] = np.inf
        best_gain, has_fresh = -math.inf, False
        for number in range(len(self._groups)):
            own = np.flatnonzero(self._group_of == number)
            if own.size == 0:
                continue
            row, second = np.unravel_index(int(total[own].argmin()), total[own].shape)
            first = int(own[row])
            gain = 1.0 - float(total[first, second]) + mixed_price
            best_gain = max(best_gain, gain)
            if gain > _GAINS:
                cover = anything.items_of(units=int(left[first, second]))
                cover.update([first, int(second)])
                has_fresh |= self._add(-1, 0, cover, {self._mixed_row: -1.0})
        return best_gain, has_fresh

    def _add(
        self, group: int, width_class: int, cover: Counter[int], rows: Mapping[int, float]
    ) -> bool:
        use = dict(rows)
        for item, number in cover.items():
            kind = int(self._kind_of[item])
            use[kind] = use.get(kind, 0.0) + number / int(self._layers[item])
        key = (group, width_class, tuple(sorted(cover.items())))
        return self._program.add_unknown(key, use, value=1.0)


def _least_classes(links_needed: float) -> list[tuple[int, int]]:
    """For every class at one end of a direct gap the least one at the other that lets F cross."""
    widest = [*(after - 1 for after in tuned.WIDTH_CLASSES[1:]), math.inf]
    pairs = []
    for out_class, out_width in enumerate(widest):
        for in_class, in_width in enumerate(widest):
            if out_width * in_width >= links_needed and links_needed < math.inf:
                pairs.append((out_class, in_class))
                break
    return pairs
