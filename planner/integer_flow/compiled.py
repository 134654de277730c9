"""Runs the maximum flow: compiled where the package was built with a C compiler, or in Python."""

import ctypes
import functools
from pathlib import Path

import numpy as np

from planner.integer_flow import dinic
from planner.integer_flow.network import IntegerFlow, IntegerNetwork, integers
from planner.native import I64, POINTER, library


def is_compiled() -> bool:
    """Whether flows are computed by machine code here."""
    return _library() is not None


def maximum_flow(network: IntegerNetwork) -> IntegerFlow:
    """A maximum flow; the same one whether compiled or not."""
    compiled = _library()
    if compiled is None:
        return dinic.maximum_flow(network)
    tails, heads = integers(network.tails), integers(network.heads)
    capacities = integers(network.capacities)
    flows = np.zeros(len(tails), dtype=np.int64)
    from_source = np.zeros(network.num_vertices, dtype=np.int64)
    value: int = compiled.maximum_flow(
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
    arguments = (I64, I64, POINTER, POINTER, POINTER, I64, I64, POINTER, POINTER)
    return library(
        Path(__file__).parent,
        "_dinic",
        edition=("dinic_edition", 1),
        functions={"maximum_flow": (I64, arguments)},
    )
