"""A model as the planner sees it: layers and bytes."""

from dataclasses import dataclass
from typing import Annotated

from planner.domain.limits import (
    MAX_BYTES,
    MAX_LAYERS,
    MIN_BYTES_PER_TOKEN,
    POSITIVE,
    Count,
    Name,
    Range,
    check_fields,
)

_BytesPerToken = Annotated[float, POSITIVE, Range(MIN_BYTES_PER_TOKEN, MAX_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """An LLM as a chain of equal layers; activations and tokens as they cross a link.

    The heads bound tensor-parallel degrees; None where they are unknown.
    """

    name: Name
    num_layers: Annotated[int, Range(1, MAX_LAYERS)]
    activation_bytes_per_token: _BytesPerToken
    token_bytes: _BytesPerToken
    bytes_per_layer: Annotated[float, Range(0, MAX_BYTES, above=True)]
    num_heads: Count | None = None
    num_kv_heads: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model.")
