"""The pattern bound B2: every layer is covered by items, and every node is paid for once.

**Statement.** Let a placement have a flow F. On each layer l, the nodes that hold it have speeds
of at least F together (their compute edges cut source from sink, with or without partial inference
and links). Let every node of kind k cost pi_k >= 0, spread evenly over the j layers it holds. Then

    sum over k of n_k * pi_k  >=  sum over layers of the price of what covers it  >=  L * v(F),

v(F) = the least sum of pi_k / j over multisets of items (k, j) with speeds of at least F together.
So prices with `sum n_k pi_k < L * v(F)` prove that F is impossible, whatever the prices. The best
prices are the duals of the linear program over all covers; they are found by column generation with
`cheapest_covers`, in which speeds are rounded **up** to units, so that v is never too large.
v rises with F, so one set of prices proves a whole range of F impossible at once.

**Hops.** With at most M stages on every path, a path runs at most j layers on a node it uses, so
`sum over layers and nodes of (flow on the node at the layer) / j <= M * F`. That is one more row,
whose price eta is paid per hop: an item that carries flow f of F costs pi_k / j + eta * f / (F j),
and M * eta joins the left side above. Flow is shared out over a cover at least cost when all items
but one carry all they can, which is what the dynamic program prices. It prices eta for the largest
F of its run: for a smaller one the same flow is a larger share, so v is again never too large.

**Spares.** If F is to be left whichever node fails, the nodes of every layer have speeds of at
least F together without the fastest of them. v(F) is then the least price of such covers, and the
rest is as before. (Hops are not counted there.)
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.bounds.cover import (
    CoverTable,
    Floats,
    Integers,
    SpareCoverTable,
    cheapest_covers,
    cheapest_covers_with_spare,
)
from planner.bounds.node_kinds import Item, NodeKind, undominated_items
from planner.bounds.packing_program import PackingProgram
from planner.tuning.flow import PatternBoundTuning as tuned

# How far rounding in sums of prices may lean; a bound leans to "possible".
_PROOF_RELATIVE_TOLERANCE = 1e-9


def pattern_bounds_tokens_per_s(
    kinds: list[NodeKind],
    *,
    num_layers: int,
    known_bound_tokens_per_s: float,
    max_hops: int | None = None,
    spares: int = 0,
) -> Iterator[float]:
    """Ever tighter bounds, from `known_bound_tokens_per_s` on, until the program can prove no more.

    Each is valid when it is yielded, so a caller may stop at any time. Deterministic. With `spares`
    1 they bound the flow that is left when the worst node fails.
    """
    if known_bound_tokens_per_s <= 0 or not kinds:
        return
    covers = _CoverProgram(
        kinds, top_tokens_per_s=known_bound_tokens_per_s, max_hops=max_hops, spares=spares
    )
    target = covers.top
    for _ in range(tuned.MAX_ITERATIONS):
        priced = covers.priced(target)
        impossible = (
            priced.table.price_of[0] * num_layers * (1 - _PROOF_RELATIVE_TOLERANCE) > priced.budget
        )
        if impossible[target]:
            # The first impossible target; every smaller flow may still be possible.
            first = int(np.argmax(impossible))
            yield first * covers.unit_tokens_per_s
            target = first - max(1, int(first * tuned.STEP))
            if target < 1:
                return
        elif priced.value >= num_layers or not covers.add(priced.table, target):
            return


def most_layers(kinds: list[NodeKind], *, flow: float) -> float:
    """No placement has more layers on which these nodes alone carry the flow.

    From the same statement: with prices scaled so that the cheapest cover costs 1, the nodes'
    prices together count the layers.
    """
    covers = _CoverProgram(kinds, top_tokens_per_s=flow)
    least = math.inf
    for _ in range(tuned.MAX_ITERATIONS):
        priced = covers.priced(covers.top)
        price = float(priced.table.price_of[0, covers.top])
        if price > 0:
            least = min(least, priced.budget / price * (1 + _PROOF_RELATIVE_TOLERANCE))
        if least <= priced.value * (1 + tuned.STEP) or not covers.add(priced.table, covers.top):
            break
    return least


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """The program's value, the nodes' prices together, and what each target costs at least."""

    value: float
    budget: float
    table: CoverTable | SpareCoverTable


class _CoverProgram:
    """maximise the number of covers, every node used at most once; speeds in units."""

    def __init__(
        self,
        kinds: list[NodeKind],
        *,
        top_tokens_per_s: float,
        max_hops: int | None = None,
        spares: int = 0,
    ) -> None:
        items = undominated_items(kinds, enough_tokens_per_s=top_tokens_per_s)
        slowest = min(item.tokens_per_s for item in items)
        units = math.ceil(min(tuned.UNITS_MAX, tuned.UNITS_OF_SLOWEST * top_tokens_per_s / slowest))
        self._spares = spares
        self.top = tuned.UNITS_WITH_SPARES if spares else max(tuned.UNITS_MIN, units)
        self.unit_tokens_per_s = top_tokens_per_s / self.top
        self._kind_of: Integers = np.array([item.kind for item in items], dtype=np.int64)
        self._layers: Integers = np.array([item.layers for item in items], dtype=np.int64)
        self._units = units_rounded_up(items, unit_tokens_per_s=self.unit_tokens_per_s)
        self._limits: Floats = np.array([float(kind.count) for kind in kinds])
        self._hops_row: int | None = None
        if max_hops is not None:
            self._hops_row = len(kinds)
            self._limits = np.append(self._limits, float(max_hops))
        self._program = PackingProgram(self._limits.tolist())
        for item in range(len(items)):
            alone = cheapest_covers(np.ones(1), self._units[item : item + 1], target_units=self.top)
            cover = [(item, carried) for _, carried in alone.order_of(units=self.top)]
            self._add(cover + [(item, 0)] * spares, self.top)

    def priced(self, target: int) -> _Priced:
        """Solve, and price the covers of 0 .. `target` units."""
        solution = self._program.solve()
        prices = solution.row_prices[self._kind_of] / self._layers
        per_unit = None
        if self._hops_row is not None:
            per_unit = solution.row_prices[self._hops_row] / self._layers / target
        return _Priced(
            value=solution.value,
            budget=float(solution.row_prices @ self._limits),
            table=cheapest_covers_with_spare(prices, self._units, target_units=target)
            if self._spares
            else cheapest_covers(
                prices, self._units, target_units=target, prices_per_unit=per_unit
            ),
        )

    def add(self, table: CoverTable | SpareCoverTable, target: int) -> bool:
        """The table's cover of the target; False when it is known: the prices are optimal."""
        return self._add(table.order_of(units=target), target)

    def _add(self, carried_by_items: list[tuple[int, int]], target: int) -> bool:
        use: dict[int, float] = {}
        for item, carried in carried_by_items:
            kind, layers = int(self._kind_of[item]), int(self._layers[item])
            use[kind] = use.get(kind, 0.0) + 1 / layers
            if self._hops_row is not None:
                use[self._hops_row] = use.get(self._hops_row, 0.0) + carried / target / layers
        return self._program.add_unknown(tuple(sorted(carried_by_items)), use, value=1.0)


def units_rounded_up(items: list[Item], *, unit_tokens_per_s: float) -> Integers:
    """Speeds in units, never less than they are."""
    return np.array(
        [max(1, math.ceil(item.tokens_per_s / unit_tokens_per_s * (1 - 1e-12))) for item in items],
        dtype=np.int64,
    )
