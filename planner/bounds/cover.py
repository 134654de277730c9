"""Cheapest covers: sets of items whose speeds add up to a target, by dynamic programming.

Speeds are whole numbers of speed units. One run answers every target at once.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from planner.bounds import compiled_cover
from planner.bounds.compiled_cover import Floats, Integers

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
        """How many of each item the cheapest cover of `units` by `at_least` items takes."""
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
    Compiled where it can be; the same in `cheapest_covers_in_python`.
    """
    per_unit = np.zeros(len(prices)) if prices_per_unit is None else prices_per_unit
    usable = np.minimum(units, target_units)
    if compiled_cover.is_compiled():
        price_of, last = compiled_cover.price_tables(
            prices, usable, per_unit, target_units=target_units, at_least=at_least
        )
        return CoverTable(price_of=price_of, _last_item=last, _units=usable)
    return cheapest_covers_in_python(
        prices, usable, per_unit, target_units=target_units, at_least=at_least
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


def cheapest_covers_in_python(
    prices: Floats,
    usable: Integers,
    per_unit: Floats,
    *,
    target_units: int,
    at_least: int,
) -> CoverTable:
    """`cheapest_covers` of items of at most `target_units`.

    As every item has u_i >= u_min >= 1, u_min consecutive targets depend on earlier ones only and
    are computed together.
    """
    offset = int(usable.max())
    block = int(usable.min())
    # Column offset + g stands for target g; those to the left of it for "reached already".
    table = np.full((at_least + 1, offset + target_units + 1), _UNREACHABLE)
    last = np.zeros((at_least + 1, target_units + 1), dtype=np.int64)
    table[0, : offset + 1] = 0.0
    for missing in range(1, at_least + 1):
        table[missing, : offset + 1] = missing * prices.min()
        last[missing, 0] = int(prices.argmin())
    for first in range(1, target_units + 1, block):
        end = min(first + block, target_units + 1)
        targets = np.arange(first, end)
        columns = offset + targets[None, :] - usable[:, None]
        carried = np.minimum(usable[:, None], targets[None, :])
        own_prices = prices[:, None] + per_unit[:, None] * carried
        for missing in range(at_least + 1):
            candidates = own_prices + table[max(missing - 1, 0)][columns]
            best = candidates.argmin(axis=0)
            table[missing, offset + first : offset + end] = candidates[best, np.arange(end - first)]
            last[missing, first:end] = best
    return CoverTable(price_of=table[:, offset:], _last_item=last, _units=usable)
