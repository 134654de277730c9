"""The compiled loops of this package, called through ctypes where they were built.

Without a C compiler callers have the same loops in Python, or do without them.
"""

import ctypes
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

I64, REAL, POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
Field: TypeAlias = "int | float | npt.NDArray[np.int64] | npt.NDArray[np.float64]"


class Packed:
    """A C struct of 8-byte fields, which keeps the arrays that it points to.

    An int is an int64_t, a float a double, an array a pointer to its numbers. Fields are in the
    order of the C declaration.
    """

    def __init__(self, **fields: Field) -> None:
        """Raises TypeError for an array that C cannot read as it lies in memory."""
        self._arrays = [value for value in fields.values() if isinstance(value, np.ndarray)]
        declared = [(name, _type_of(name, value)) for name, value in fields.items()]
        struct = type("_Struct", (ctypes.Structure,), {"_fields_": declared})
        self._struct: ctypes.Structure = struct(
            *(
                value.ctypes.data if isinstance(value, np.ndarray) else value
                for value in fields.values()
            )
        )

    @property
    def address(self) -> int:
        return ctypes.addressof(self._struct)

    def value(self, name: str) -> int | float:
        """The field as it is now."""
        read: int | float = getattr(self._struct, name)
        return read


def _type_of(name: str, value: Field) -> type:
    if isinstance(value, np.ndarray):
        if value.dtype not in (np.int64, np.float64) or not value.flags.c_contiguous:
            raise TypeError(
                f"{name} is {value.dtype} or has gaps; C reads contiguous 8-byte numbers"
            )
        return POINTER
    return I64 if isinstance(value, int) else REAL


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
