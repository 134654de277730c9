"""Cheapest covers by machine code, where the package was built with a C compiler."""

import ctypes
import functools
from pathlib import Path

import numpy as np
import numpy.typing as npt

from planner.native import I64, POINTER, library

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def is_compiled() -> bool:
    """Whether covers are found by machine code here."""
    return _library() is not None


def price_tables(
    prices: Floats,
    units: Integers,
    prices_per_unit: Floats,
    *,
    target_units: int,
    at_least: int,
) -> tuple[Floats, Integers]:
    """(price, last item) of [0 .. at_least, 0 .. target_units]; needs the compiled code."""
    compiled = _library()
    if compiled is None:
        raise RuntimeError("covers are not compiled here; ask is_compiled() first")
    prices, per_unit = np.ascontiguousarray(prices), np.ascontiguousarray(prices_per_unit)
    units = np.ascontiguousarray(units, dtype=np.int64)
    price_of = np.empty((at_least + 1, target_units + 1))
    last_item = np.empty((at_least + 1, target_units + 1), dtype=np.int64)
    compiled.cheapest_covers(
        len(prices),
        units.ctypes.data,
        prices.ctypes.data,
        per_unit.ctypes.data,
        target_units,
        at_least,
        price_of.ctypes.data,
        last_item.ctypes.data,
    )
    return price_of, last_item


@functools.cache
def _library() -> ctypes.CDLL | None:
    arguments = (I64, POINTER, POINTER, POINTER, I64, I64, POINTER, POINTER)
    return library(
        Path(__file__).parent,
        "_cover",
        edition=("cover_edition", 1),
        functions={"cheapest_covers": (None, arguments)},
    )
