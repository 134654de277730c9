"""The compiled loops of this package, called through ctypes where they were built.

Without a C compiler callers have the same loops in Python, or do without them.
"""

import ctypes
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

I64, REAL, POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def library(
    folder: Path,
    name: str,
    *,
    edition: tuple[str, int],
    functions: Mapping[str, tuple[type | None, Sequence[type]]],
) -> ctypes.CDLL | None:
    """The library `name` with the result and the arguments of its functions set.

    None where it was not built, or from other sources: `edition` is a number in the library by that
    name, raised there and here with every change.
    """
    paths = [folder / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES]
    built = next((path for path in paths if path.exists()), None)
    if built is None:
        return None
    found = ctypes.CDLL(str(built))
    symbol, number = edition
    try:
        if I64.in_dll(found, symbol).value != number:
            return None
    except ValueError:
        return None
    for function, (result, arguments) in functions.items():
        getattr(found, function).restype = result
        getattr(found, function).argtypes = list(arguments)
    return found
