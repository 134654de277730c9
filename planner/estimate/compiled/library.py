"""Finds the compiled loops and hands them arrays."""

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_LIBRARY_NAME = "_estimate"
_EDITION = 10  # of module.c
_I64, _REAL, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


def is_compiled() -> bool:
    """Whether the loops run as machine code here."""
    return library() is not None


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled loops, or None where they were not built, or built from other sources."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(_LIBRARY_NAME + suffix)
        if path.exists():
            found = ctypes.CDLL(str(path))
            break
    else:
        return None
    try:
        edition = ctypes.c_int64.in_dll(found, "estimate_edition").value
    except ValueError:
        return None
    if edition != _EDITION:
        return None
    found.sustained_load.restype = None
    found.sustained_load.argtypes = [
        *(_POINTER, _I64, _I64, _I64),
        *[_POINTER] * 15,
        *(_REAL, _POINTER, _POINTER),
    ]
    found.anneal_estimate.restype = _REAL
    found.anneal_estimate.argtypes = [
        *(_POINTER, _I64, _I64, _I64, _I64, _I64, _I64, _REAL),
        *[_POINTER] * 19,
        *(_I64, _I64, _I64, _REAL, _REAL, _I64),
        *[_POINTER] * 6,
    ]
    return found
