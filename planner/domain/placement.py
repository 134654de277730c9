"""Which layers each node holds (Helix §4.1, the function Psi)."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from planner.domain.errors import InvalidPlacement
from planner.domain.option import Option

MAX_LAYERS = 10_000  # that users may name


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRange:
    """Layers [first, end)."""

    first: Annotated[int, Option("First layer", least=0, most=MAX_LAYERS)]
    end: Annotated[int, Option("End layer, not held", least=1, most=MAX_LAYERS)]

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

    def beyond(self, held: "LayerRange | None") -> int:
        """Number of these layers that are not in `held`: those a node with `held` must load."""
        if held is None:
            return len(self)
        return len(self) - max(0, min(self.end, held.end) - max(self.first, held.first))


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

    @property
    def parts(self) -> tuple["Placement", ...]:
        """Each component as a separate placement; the placement itself if it is one component."""
        if len(self.components) < 2:
            return (self,)
        return tuple(
            Placement(layers={name: held for name, held in self.layers.items() if name in names})
            for names in self.components
        )

    def without(self, names: Collection[str]) -> "Placement":
        """The placement without these nodes; components that lose all their nodes are removed."""
        layers = {name: held for name, held in self.layers.items() if name not in names}
        left = tuple(part for names in self.components if (part := names.intersection(layers)))
        return replace(self, layers=layers, components=left if len(left) > 1 else ())

    def with_node(self, name: str, held: LayerRange, *, component: int = 0) -> "Placement":
        """The placement in which `name` holds `held`, whatever it held before.

        A node that held nothing joins the component of that index.
        """
        components = list(self.components)
        if components and name not in self.layers:
            components[component] |= {name}
        return replace(self, layers={**self.layers, name: held}, components=tuple(components))

    def as_lists(self) -> dict[str, list[int]]:
        """{node: [first, end]}, sorted by name, as files and the REST API write it."""
        return {name: [held.first, held.end] for name, held in sorted(self.layers.items())}


def together(parts: Iterable[Placement]) -> Placement:
    """Components as one placement; those without nodes are left out."""
    parts = [part for part in parts if part.layers]
    return Placement(
        layers={name: held for part in parts for name, held in part.layers.items()},
        components=tuple(frozenset(part.layers) for part in parts) if len(parts) > 1 else (),
    )
