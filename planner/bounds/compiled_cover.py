"""Cheapest covers by machine code, where the package was built with a C compiler."""

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_LIBRARY_NAME = "_cover"
_EDITION = 1  # of cover.c
_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p


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
    library = _library()
    if library is None:
        raise RuntimeError("covers are not compiled here; ask is_compiled() first")
    prices, per_unit = np.ascontiguousarray(prices), np.ascontiguousarray(prices_per_unit)
    units = np.ascontiguousarray(units, dtype=np.int64)
    price_of = np.empty((at_least + 1, target_units + 1))
    last_item = np.empty((at_least + 1, target_units + 1), dtype=np.int64)
    library.cheapest_covers(
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
    """The compiled covers, or None where they were not built, or built from another source."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(_LIBRARY_NAME + suffix)
        if path.exists():
            break
    else:
        return None
    library = ctypes.CDLL(str(path))
    try:
        edition = ctypes.c_int64.in_dll(library, "cover_edition").value
    except ValueError:
        return None
    if edition != _EDITION:
        return None
    library.cheapest_covers.restype = None
    library.cheapest_covers.argtypes = [
        *(_I64, _POINTER, _POINTER, _POINTER, _I64, _I64, _POINTER, _POINTER)
    ]
    return library
