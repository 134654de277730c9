"""Cheapest covers, against trying every set of items."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bounds.cover import cheapest_covers
from tests.examples import examples


@st.composite
def coverings(draw):
    count = draw(st.integers(1, 4))
    units = np.array([draw(st.integers(1, 9)) for _ in range(count)], dtype=np.int64)
    price = st.floats(0.0, 3.0)
    prices = np.array([draw(price) for _ in range(count)])
    per_unit = np.array([draw(st.sampled_from([0.0, 0.1, 0.7])) for _ in range(count)])
    return prices, units, per_unit, draw(st.integers(1, 9)), draw(st.integers(0, 2))


@settings(max_examples=examples(60))
@given(covering=coverings())
def test_the_cheapest_cover_is_the_cheapest_of_all_sets(covering):
    prices, units, per_unit, target, at_least = covering

    def price(items):
        """Those that carry a unit for less carry first; only the last of them may carry less."""
        total, left = 0.0, target
        for item in sorted(items, key=lambda item: per_unit[item]):
            carried = min(int(units[item]), left)
            total += prices[item] + per_unit[item] * carried
            left -= carried
        return total

    cheapest = min(
        price(items)
        for count in range(1, target + at_least + 1)
        for items in itertools.combinations_with_replacement(range(len(prices)), count)
        if sum(units[item] for item in items) >= target and count >= at_least
    )
    table = cheapest_covers(
        prices, units, target_units=target, at_least=at_least, prices_per_unit=per_unit
    )
    assert table.price_of[at_least, target] == pytest.approx(cheapest)
    chosen = table.items_of(units=target, at_least=at_least)
    assert sum(units[item] * count for item, count in chosen.items()) >= target
    assert price(list(chosen.elements())) == pytest.approx(cheapest)
