"""Maximum flow over integer capacities, by Dinic's algorithm in C. Knows of no placements."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from planner.native import I64, INTEGERS, function

IntegerArray: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerNetwork:
    """Edges tails[e] -> heads[e] between vertices 0 .. num_vertices - 1.

    All capacities that leave the source add up to less than 2**63.
    """

    num_vertices: int
    source: int
    sink: int
    tails: IntegerArray
    heads: IntegerArray
    capacities: IntegerArray


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerFlow:
    """The value, the flow on every edge, and 1 for every vertex that more flow could still reach.

    These vertices are the source's side of a minimum cut.
    """

    value: int
    flows: IntegerArray
    from_source: IntegerArray


def integers(values: IntegerArray | Sequence[int]) -> IntegerArray:
    """An array in the form of the compiled code."""
    return np.ascontiguousarray(values, dtype=np.int64)


def maximum_flow(network: IntegerNetwork) -> IntegerFlow:
    """A maximum flow, the same one at every call."""
    flows = np.zeros(len(network.tails), dtype=np.int64)
    from_source = np.zeros(network.num_vertices, dtype=np.int64)
    value: int = _maximum_flow(
        network.num_vertices,
        len(flows),
        integers(network.tails),
        integers(network.heads),
        integers(network.capacities),
        network.source,
        network.sink,
        flows,
        from_source,
    )
    if value < 0:
        raise MemoryError("no memory for a maximum flow")
    return IntegerFlow(value=value, flows=flows, from_source=from_source)


_maximum_flow = function(
    "maximum_flow", I64, I64, I64, INTEGERS, INTEGERS, INTEGERS, I64, I64, INTEGERS, INTEGERS
)
