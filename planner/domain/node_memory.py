"""Memory of the model's two ends on a node: the embedding beside the first layer, the head beside
the last.

A compute profile's `max_layers` and KV room hold for layers in the middle of the model. A node that
gets the first layer holds the embedding as well, one that gets the last the output head; both take
memory that layers and KV cache then lack.
"""

from dataclasses import dataclass
from typing import Annotated

from planner.domain.errors import InvalidProblem
from planner.domain.limits import (
    MAX_BYTES,
    MAX_LAYERS,
    MAX_TOKEN_LAYERS,
    Count,
    Range,
    check_fields,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvMinimum:
    """KV cache that a node must have room for before it may hold layers: `requests` of `tokens`."""

    requests: Count
    tokens: Count

    def __str__(self) -> str:
        return f"{self.requests} request{'s' * (self.requests > 1)} of {self.tokens} tokens"

    def __post_init__(self) -> None:
        check_fields(self, "kv_minimum.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRoom:
    """The most layers that a node can hold at an end of the model.

    `kv_token_layers_less`: by how much its KV room, in tokens x layers, is below that of as many
    layers in the middle.
    """

    max_layers: Annotated[int, Range(0, MAX_LAYERS)]
    kv_token_layers_less: Annotated[float, Range(0, MAX_TOKEN_LAYERS)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "at an end of the model: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMemory:
    """A node's room with the first layer, with the last, and with both, which is the whole model.

    Both ends may cost less than the sum of the two: tied embeddings are held once.
    `reserve_bytes` of its memory were kept free for what is neither weights, activations nor KV.
    """

    first: EndRoom
    last: EndRoom
    both: EndRoom
    kv_minimum: KvMinimum | None = None
    reserve_bytes: Annotated[float, Range(0, MAX_BYTES)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "memory.")
        for key in ("first", "last"):
            if getattr(self, key).max_layers < self.both.max_layers:
                raise InvalidProblem(
                    f"memory.both.max_layers is {self.both.max_layers}, above "
                    f"memory.{key}.max_layers; a node with both ends of the model holds no more "
                    "layers than with one"
                )

    def room(self, *, has_first: bool, has_last: bool) -> EndRoom | None:
        """The room with those ends; None in the middle of the model."""
        if has_first:
            return self.both if has_last else self.first
        return self.last if has_last else None
