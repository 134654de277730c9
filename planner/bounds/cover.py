"""Cheapest covers: sets of items whose speeds add up to a target, by dynamic programming in C.

Speeds are whole numbers of speed units. One run answers every target at once.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.native import I64, INTEGERS, REALS, function

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_UNREACHABLE = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverTable:
    """`price_of[m, g]`: the least price of at least m items that reach g units together."""

    price_of: Floats
    _last_item: Integers
    _units: Integers

    def order_of(self, *, units: int) -> list[tuple[int, int]]:
        """(item, units it carries) of the cheapest cover; only the last one may carry less."""
        carried = []
        left = units
        while left > 0:
            item = int(self._last_item[0, left])
            carried.append((item, min(left, int(self._units[item]))))
            left -= carried[-1][1]
        return carried

    def items_of(self, *, units: int, at_least: int = 0) -> Counter[int]:
        """Items of the cheapest cover of `units` by `at_least` items, with their counts."""
        chosen: Counter[int] = Counter()
        left, missing = units, at_least
        while left > 0 or missing > 0:
            item = int(self._last_item[missing, left])
            chosen[item] += 1
            left = max(0, left - int(self._units[item]))
            missing = max(0, missing - 1)
        return chosen


def cheapest_covers(
    prices: Floats,
    units: Integers,
    *,
    target_units: int,
    at_least: int = 0,
    prices_per_unit: Floats | None = None,
) -> CoverTable:
    """Covers of 0 .. `target_units` by 0 .. `at_least` items or more, any number of each.

    price(m, g) = min over items i of
        price_i + price_per_unit_i * min(u_i, g) + price(max(m-1, 0), max(g-u_i, 0)), 0 at (0, 0).
    """
    per_unit = np.zeros(len(prices)) if prices_per_unit is None else prices_per_unit
    usable = np.ascontiguousarray(np.minimum(units, target_units), dtype=np.int64)
    price_of = np.empty((at_least + 1, target_units + 1))
    last_item = np.empty((at_least + 1, target_units + 1), dtype=np.int64)
    _cheapest_covers(
        len(prices),
        usable,
        np.ascontiguousarray(prices),
        np.ascontiguousarray(per_unit),
        target_units,
        at_least,
        price_of,
        last_item,
    )
    return CoverTable(price_of=price_of, _last_item=last_item, _units=usable)


_cheapest_covers = function(
    "cheapest_covers", None, I64, INTEGERS, REALS, REALS, I64, I64, REALS, INTEGERS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareCoverTable:
    """`price_of[0, g]`: the least price of items that reach g units without the fastest of them."""

    price_of: Floats
    _prices: Floats
    _units: Integers
    _slowest_first: Integers

    def order_of(self, *, units: int) -> list[tuple[int, int]]:
        """(item, units it carries) of the cheapest cover; the fastest item carries none."""
        best, best_price = -1, _UNREACHABLE
        for place, item in enumerate(self._slowest_first.tolist()):
            table = self._others(place, units)
            price = float(self._prices[item] + table.price_of[0, units])
            if price < best_price:
                best, best_price = place, price
        others = self._others(best, units).order_of(units=units)
        by_speed = self._slowest_first.tolist()
        return [(by_speed[best], 0), *((by_speed[place], carried) for place, carried in others)]

    def _others(self, place: int, units: int) -> CoverTable:
        slower = self._slowest_first[: place + 1]
        return cheapest_covers(self._prices[slower], self._units[slower], target_units=units)


def cheapest_covers_with_spare(
    prices: Floats, units: Integers, *, target_units: int
) -> SpareCoverTable:
    """Covers of 0 .. `target_units` that need not their fastest item.

    price(g) = min over items i of price_i + the cheapest cover of g by items no faster than i.
    """
    slowest_first = np.argsort(units, kind="stable")
    least = np.full(target_units + 1, _UNREACHABLE)
    for place, item in enumerate(slowest_first.tolist()):
        slower = slowest_first[: place + 1]
        table = cheapest_covers(prices[slower], units[slower], target_units=target_units)
        least = np.minimum(least, prices[item] + table.price_of[0])
    least[0] = 0.0
    return SpareCoverTable(
        price_of=least[None, :], _prices=prices, _units=units, _slowest_first=slowest_first
    )
