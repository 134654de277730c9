"""Which layers each node holds (Helix §4.1, the function Psi)."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.domain.errors import InvalidPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRange:
    """Layers [first, end)."""

    first: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.end:
            raise InvalidPlacement(
                f"layer range [{self.first}, {self.end}) is empty or negative; "
                "ranges are [first, end) with 0 <= first < end"
            )

    def __len__(self) -> int:
        return self.end - self.first

    def __str__(self) -> str:
        return f"[{self.first}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """node name -> layers it holds. A node that holds nothing is absent.

    `components` are sets of nodes that serve apart: activations never go from one to another, as
    in separate pipelines. Every node that holds layers is in exactly one; () means one component.
    """

    layers: Mapping[str, LayerRange]
    components: tuple[frozenset[str], ...] = ()

    def __post_init__(self) -> None:
        if not self.components:
            return
        listed = [name for component in self.components for name in component]
        for name in listed:
            if name not in self.layers:
                raise InvalidPlacement(
                    f"a component names {name!r}, which holds no layers; give it layers or leave "
                    "it out"
                )
        if len(set(listed)) < len(listed):
            twice = sorted({name for name in listed if listed.count(name) > 1})
            raise InvalidPlacement(
                f"more than one component has {twice[0]!r}; a node belongs to one component"
            )
        missing = sorted(set(self.layers) - set(listed))
        if missing:
            raise InvalidPlacement(
                f"no component has {missing[0]!r}; put every node that holds layers into one"
            )

    def component_of(self, name: str) -> int:
        """The index of the node's component; 0 where there is only one. Raises KeyError."""
        for index, component in enumerate(self.components):
            if name in component:
                return index
        if self.components or name not in self.layers:
            raise KeyError(name)
        return 0

    def as_lists(self) -> dict[str, list[int]]:
        """{node: [first, end]}, sorted by name, as files and the REST API write it."""
        return {name: [held.first, held.end] for name, held in sorted(self.layers.items())}
