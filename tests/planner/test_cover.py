"""Cheapest covers, compiled and in Python, against trying every set of items."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bounds import compiled_cover
from planner.bounds.cover import cheapest_covers, cheapest_covers_in_python
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
    prices, units, _, target, at_least = covering
    cheapest = min(
        sum(prices[item] for item in items)
        for count in range(1, target + at_least + 1)
        for items in itertools.combinations_with_replacement(range(len(prices)), count)
        if sum(units[item] for item in items) >= target and count >= at_least
    )
    table = cheapest_covers(prices, units, target_units=target, at_least=at_least)
    assert table.price_of[at_least, target] == pytest.approx(cheapest)
    chosen = table.items_of(units=target, at_least=at_least)
    assert sum(units[item] * count for item, count in chosen.items()) >= target
    assert sum(prices[item] * count for item, count in chosen.items()) == pytest.approx(cheapest)


@pytest.mark.skipif(
    not compiled_cover.is_compiled(), reason="the package was built without a C compiler"
)
@settings(max_examples=examples(100))
@given(covering=coverings())
def test_compiled_or_not_the_tables_are_the_same_to_the_last_bit(covering):
    prices, units, per_unit, target, at_least = covering
    usable = np.minimum(units, target)
    expected = cheapest_covers_in_python(
        prices, usable, per_unit, target_units=target, at_least=at_least
    )
    found = cheapest_covers(
        prices, units, target_units=target, at_least=at_least, prices_per_unit=per_unit
    )
    assert found.price_of.tolist() == expected.price_of.tolist()
    for number, units_left in itertools.product(range(at_least + 1), range(1, target + 1)):
        assert found.items_of(units=units_left, at_least=number) == expected.items_of(
            units=units_left, at_least=number
        )
