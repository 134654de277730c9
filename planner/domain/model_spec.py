"""What the planner must know of a model: layers and bytes."""

from dataclasses import dataclass

from planner.domain.errors import InvalidProblem
from planner.domain.limits import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_LAYERS,
    MIN_BYTES_PER_TOKEN,
    check_between,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """An LLM as a chain of equal layers; activations and tokens as they cross a link.

    The heads bound tensor-parallel degrees; None where nobody knows them.
    """

    name: str
    num_layers: int
    activation_bytes_per_token: float
    token_bytes: float
    bytes_per_layer: float
    num_heads: int | None = None
    num_kv_heads: int | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidProblem("model.name is empty; name the model")
        for key in ("num_layers", "activation_bytes_per_token", "token_bytes", "bytes_per_layer"):
            value = getattr(self, key)
            if not value > 0:
                raise InvalidProblem(f"model.{key} is {value}; it must be greater than 0")
        check_between("model.num_layers", self.num_layers, 1, MAX_LAYERS)
        check_between("model.bytes_per_layer", self.bytes_per_layer, 0, MAX_BYTES)
        for key in ("activation_bytes_per_token", "token_bytes"):
            check_between(f"model.{key}", getattr(self, key), MIN_BYTES_PER_TOKEN, MAX_BYTES)
        for key in ("num_heads", "num_kv_heads"):
            heads: int | None = getattr(self, key)
            if heads is not None and heads < 1:
                raise InvalidProblem(f"model.{key} is {heads}; it must be 1 or more, or left out")
            check_between(f"model.{key}", heads or 1, 1, MAX_COUNT)
