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
    """node name -> layers it holds. A node that holds nothing is absent."""

    layers: Mapping[str, LayerRange]

    def as_lists(self) -> dict[str, list[int]]:
        """{node: [first, end]}, sorted by name, as files and the REST API write it."""
        return {name: [held.first, held.end] for name, held in sorted(self.layers.items())}
