"""A flow of tokens through a placement, with its minimum cut (Helix §4.3)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFlow:
    """A directed connection between `source`, nodes and `sink`, in tokens/s."""

    source: str
    target: str
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
class MinCut:
    """The saturated nodes and edges that together limit the flow."""

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    capacity_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A maximum flow: every valid connection of the placement, used or not, and the cut."""

    value_tokens_per_s: float
    edges: tuple[EdgeFlow, ...]
    nodes: Mapping[str, NodeFlow]
    min_cut: MinCut
