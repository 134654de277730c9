"""User's constraints on a placement: hops, exclusions, pins, layers, KV room."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from planner.domain.errors import PlannerError
from planner.domain.limits import Range, check_fields
from planner.domain.option import Option
from planner.domain.placement import MAX_LAYERS, LayerRange


class InvalidRules(PlannerError, ValueError):
    """Rules that contradict themselves, each other or the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """Rules that every placer honours; none by default.

    `max_hops`: no request visits more stages. `excluded_nodes` hold nothing. `pinned` nodes hold
    exactly the given layers. `max_layers_per_node` limits all nodes, `max_layers_of` some.
    `kv_reserve_tokens`: every node keeps KV room for that many tokens on each layer it holds.
    """

    max_hops: Annotated[
        Annotated[int, Range(1)] | None,
        Option(
            "Most stages a request visits",
            "If not given: any number. Fewer stages answer sooner.",
            least=1,
            most=MAX_LAYERS,
        ),
    ] = None
    excluded_nodes: Annotated[frozenset[str], Option("Nodes that hold nothing")] = frozenset()
    pinned: Annotated[
        Mapping[str, LayerRange],
        Option(
            "Nodes that hold exactly these layers",
            "Layers are numbered from 0. The end layer is not held.",
        ),
    ] = field(default_factory=dict)
    max_layers_per_node: Annotated[
        Annotated[int, Range(1)] | None,
        Option(
            "Most layers on a node",
            "If not given: what its memory holds.",
            least=1,
            most=MAX_LAYERS,
        ),
    ] = None
    max_layers_of: Annotated[
        Mapping[str, int], Option("Nodes that hold fewer layers", least=0, most=MAX_LAYERS)
    ] = field(default_factory=dict)
    kv_reserve_tokens: Annotated[
        float,
        Range(0),
        Option(
            "KV reserve",
            "Every node keeps KV room for so many tokens on each layer it holds.",
            unit="tokens",
            least=0,
            most=1e12,
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        check_fields(self, error=InvalidRules)
        for node, limit in self.max_layers_of.items():
            if limit < 0:
                raise InvalidRules(f"max_layers_of {node!r} is {limit}; it must be 0 or more")
        for node in sorted(self.excluded_nodes & self.pinned.keys()):
            raise InvalidRules(
                f"node {node!r} is excluded and pinned to layers {self.pinned[node]}; keep one"
            )

    @property
    def once_restricted(self) -> "PlacementRules":
        """The rules that remain in a problem of `restricted_problem`: pins and hops."""
        return PlacementRules(max_hops=self.max_hops, pinned=self.pinned)

    def about(self, names: Collection[str]) -> "PlacementRules":
        """The rules without those about single nodes that are not in `names`."""
        return replace(
            self,
            excluded_nodes=self.excluded_nodes & frozenset(names),
            pinned={name: held for name, held in self.pinned.items() if name in names},
            max_layers_of={
                name: limit for name, limit in self.max_layers_of.items() if name in names
            },
        )

    def open_layers(self, num_layers: int) -> int:
        """Number of the model's layers that no pin holds."""
        held = {layer for pin in self.pinned.values() for layer in range(pin.first, pin.end)}
        return num_layers - len(held)
