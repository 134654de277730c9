"""A flow of tokens through a placement, with its minimum cut (Helix §4.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from planner.domain.limits import POSITIVE, Name


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFlow:
    """A directed connection between `source`, nodes and `sink`, in tokens/s."""

    source: Name
    target: Name
    capacity_tokens_per_s: float
    flow_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFlow:
    """The edge (c_in, c_out) of a node: compute capacity and flow, in tokens/s."""

    capacity_tokens_per_s: float
    flow_tokens_per_s: float

    @property
    def utilisation(self) -> float:
        """Flow / capacity, 0 to 1."""
        if self.capacity_tokens_per_s <= 0:
            return 0.0
        return self.flow_tokens_per_s / self.capacity_tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFlow:
    """Use of a shared bandwidth by its members, in bytes/s."""

    name: Name
    bandwidth_bytes_per_s: Annotated[float, POSITIVE]
    used_bytes_per_s: float


PriceKind = Literal["node", "connection", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Value of one more unit of a limit: tokens/s per token/s, or per byte/s if shared.

    `name` is a node's, the two ends of a connection, or a shared bandwidth's.
    """

    kind: PriceKind
    name: tuple[str, ...]
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MinCut:
    """The saturated nodes and edges that together limit the flow.

    Where bandwidth is shared, no set of nodes and edges need weigh as little as the flow: then
    `shared` names the saturated bandwidths and `prices` proves the flow maximal. Every path from
    source to sink pays at least 1 by them, and all capacities cost `capacity_tokens_per_s`.
    Without `prices` every node and edge of the cut has the price 1.
    """

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    capacity_tokens_per_s: float
    shared: tuple[str, ...] = ()
    prices: tuple[Price, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A maximum flow: every valid connection of the placement, used or not, and the cut."""

    value_tokens_per_s: float
    edges: tuple[EdgeFlow, ...]
    nodes: Mapping[str, NodeFlow]
    min_cut: MinCut
    shared: tuple[SharedFlow, ...] = ()
