"""A network of integer capacities and a maximum flow of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

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
    """As the compiled code wants them."""
    return np.ascontiguousarray(values, dtype=np.int64)
