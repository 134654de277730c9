"""What is asked of every model, whichever code runs it: sizes, bytes, and how they are read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runtime.models.checkpoint import CheckpointError

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of a decoder, whichever code runs it; `dtype` is that of weights and activations.

    `layer_parameters` counts the weights of each layer. `intermediate_size` is the width that one
    row's MLP activations have at once.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    layer_parameters: tuple[int, ...]
    tie_word_embeddings: bool
    max_position_embeddings: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise CheckpointError(
                f"num_attention_heads is {self.num_heads}, not a multiple of num_key_value_heads "
                f"{self.num_kv_heads}; config.json is damaged, download the checkpoint again"
            )
        if self.head_size % 2:
            raise CheckpointError(
                f"head_dim is {self.head_size}; rotary embeddings need an even number"
            )
        if len(self.layer_parameters) != self.num_layers:
            raise CheckpointError(
                f"{len(self.layer_parameters)} layers are described, num_hidden_layers is "
                f"{self.num_layers}; config.json is damaged, download the checkpoint again"
            )

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_size

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_size

    @property
    def bytes_per_layer(self) -> int:
        """Weights of the largest layer, norms included."""
        return max(self.layer_parameters) * self.dtype.itemsize

    @property
    def embedding_bytes(self) -> int:
        """The token embedding, and as many again for an untied output head."""
        return self.vocab_size * self.hidden_size * self.dtype.itemsize

    def weights_bytes(self, first: int, end: int) -> int:
        """Bytes a stage holding layers [first, end) keeps of the weights."""
        return self.weights_bytes_of(range(first, end))

    def weights_bytes_of(self, layers: Collection[int]) -> int:
        """The same for any layers: the embedding goes with layer 0, norm and head with the last."""
        has_head = self.num_layers - 1 in layers
        tables = int(0 in layers) + int(has_head)
        if self.tie_word_embeddings:
            tables = min(tables, 1)
        norm_bytes = self.hidden_size * self.dtype.itemsize if has_head else 0
        parameters = sum(self.layer_parameters[layer] for layer in layers)
        return parameters * self.dtype.itemsize + tables * self.embedding_bytes + norm_bytes


def parse_dtype(raw: Mapping[str, Any], *, path: Path) -> torch.dtype:
    """Of weights and activations. Raises CheckpointError, also for quantized weights."""
    if raw.get("quantization_config") is not None:
        raise CheckpointError(
            f"{path}: quantization_config is {raw['quantization_config']!r}; quantized weights "
            "are not supported, choose the checkpoint in bfloat16, float16 or float32"
        )
    name = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    if name not in DTYPES:
        raise CheckpointError(
            f"{path}: dtype is {name!r}, which is not supported (supported: {', '.join(DTYPES)})"
        )
    return DTYPES[name]


def positive(raw: Mapping[str, Any], key: str, *, path: Path, default: int | None = None) -> int:
    """A whole number of 1 or more under `key`. Raises CheckpointError."""
    value = raw.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"{path}: {key} is {value!r}; it must be a whole number of 1 or more")
    return value
