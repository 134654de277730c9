"""Runs the maximum flow: compiled where the package was built with a C compiler, or in Python."""

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np

from planner.integer_flow import dinic
from planner.integer_flow.network import IntegerFlow, IntegerNetwork, integers

_LIBRARY_NAME = "_dinic"
_EDITION = 1  # of dinic.c
_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p


def is_compiled() -> bool:
    """Whether flows are computed by machine code here."""
    return _library() is not None


def maximum_flow(network: IntegerNetwork) -> IntegerFlow:
    """A maximum flow; the same one whether compiled or not."""
    library = _library()
    if library is None:
        return dinic.maximum_flow(network)
    tails, heads = integers(network.tails), integers(network.heads)
    capacities = integers(network.capacities)
    flows = np.zeros(len(tails), dtype=np.int64)
    from_source = np.zeros(network.num_vertices, dtype=np.int64)
    value: int = library.maximum_flow(
        network.num_vertices,
        len(tails),
        tails.ctypes.data,
        heads.ctypes.data,
        capacities.ctypes.data,
        network.source,
        network.sink,
        flows.ctypes.data,
        from_source.ctypes.data,
    )
    if value < 0:
        raise MemoryError("no memory for a maximum flow")
    return IntegerFlow(value=value, flows=flows, from_source=from_source)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """The compiled flow, or None where it was not built, or built from another source."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(_LIBRARY_NAME + suffix)
        if path.exists():
            break
    else:
        return None
    library = ctypes.CDLL(str(path))
    try:
        edition = ctypes.c_int64.in_dll(library, "dinic_edition").value
    except ValueError:
        return None
    if edition != _EDITION:
        return None
    library.maximum_flow.restype = _I64
    library.maximum_flow.argtypes = [
        *(_I64, _I64, _POINTER, _POINTER, _POINTER, _I64, _I64, _POINTER, _POINTER)
    ]
    return library
