"""What config.json says of a Llama model (Hugging Face layout, old and new key names)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_DEFAULT_ROPE_THETA = 10000.0


class CheckpointError(Exception):
    """A checkpoint we cannot run; the message names the file, the value and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3RopeScaling:
    """The long-context stretch of Llama 3.1: low frequencies divided by `factor`."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of a Llama decoder; `dtype` is that of its weights and activations."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Llama3RopeScaling | None
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

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_size

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_size

    @property
    def bytes_per_layer(self) -> int:
        """Weights of one layer, norms included."""
        attention = (self.query_size * 2 + self.kv_size * 2) * self.hidden_size
        mlp = 3 * self.intermediate_size * self.hidden_size
        return (attention + mlp + 2 * self.hidden_size) * self.dtype.itemsize

    @property
    def embedding_bytes(self) -> int:
        """The token embedding, and as many again for an untied output head."""
        return self.vocab_size * self.hidden_size * self.dtype.itemsize

    def weights_bytes(self, first: int, end: int) -> int:
        """Bytes a stage holding layers [first, end) keeps of the weights."""
        has_head = end == self.num_layers
        tables = int(first == 0) + int(has_head)
        if self.tie_word_embeddings:
            tables = min(tables, 1)
        norm_bytes = self.hidden_size * self.dtype.itemsize if has_head else 0
        return (end - first) * self.bytes_per_layer + tables * self.embedding_bytes + norm_bytes


def read_config(checkpoint: Path) -> ModelConfig:
    """The config of a checkpoint directory. Raises CheckpointError."""
    path = checkpoint / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist; give the directory of a Hugging Face Llama checkpoint"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds no JSON object; download the checkpoint again")
    return parse_config(raw, path=path)


def parse_config(raw: Mapping[str, Any], *, path: Path) -> ModelConfig:
    """The content of a config.json; `path` is named in errors. Raises CheckpointError."""
    _refuse(path, "model_type", raw.get("model_type"), allowed=("llama",))
    _refuse(path, "hidden_act", raw.get("hidden_act", "silu"), allowed=("silu",))
    _refuse(path, "attention_bias", raw.get("attention_bias", False), allowed=(False,))
    _refuse(path, "mlp_bias", raw.get("mlp_bias", False), allowed=(False,))
    _refuse(path, "quantization_config", raw.get("quantization_config"), allowed=(None,))
    dtype_name = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    _refuse(path, "dtype", dtype_name, allowed=tuple(_DTYPES))
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    rope_type = rope.get("rope_type") or rope.get("type") or "default"
    _refuse(path, "rope_type", rope_type, allowed=("default", "llama3"))
    num_heads = _positive(raw, "num_attention_heads", path)
    hidden_size = _positive(raw, "hidden_size", path)
    max_positions = _positive(raw, "max_position_embeddings", path)
    scaling = None
    try:
        if rope_type == "llama3":
            scaling = Llama3RopeScaling(
                factor=float(rope["factor"]),
                low_freq_factor=float(rope["low_freq_factor"]),
                high_freq_factor=float(rope["high_freq_factor"]),
                original_max_position_embeddings=int(rope["original_max_position_embeddings"]),
            )
        rms_norm_eps = float(raw.get("rms_norm_eps", 1e-6))
        theta = float(rope.get("rope_theta") or raw.get("rope_theta") or _DEFAULT_ROPE_THETA)
    except KeyError as error:
        raise CheckpointError(
            f"{path}: llama3 rope scaling lacks {error}; download the checkpoint again"
        ) from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: rope or norm parameters: {error}") from None
    return ModelConfig(
        num_layers=_positive(raw, "num_hidden_layers", path),
        hidden_size=hidden_size,
        intermediate_size=_positive(raw, "intermediate_size", path),
        num_heads=num_heads,
        num_kv_heads=_positive(raw, "num_key_value_heads", path, default=num_heads),
        head_size=_positive(raw, "head_dim", path, default=hidden_size // num_heads),
        vocab_size=_positive(raw, "vocab_size", path),
        rms_norm_eps=rms_norm_eps,
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        max_position_embeddings=max_positions,
        dtype=_DTYPES[dtype_name],
    )


def _refuse(path: Path, key: str, value: object, *, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        choices = ", ".join(str(choice) for choice in allowed)
        raise CheckpointError(
            f"{path}: {key} is {value!r}, which is not supported (supported: {choices}); "
            "choose a plain Llama checkpoint"
        )


def _positive(raw: Mapping[str, Any], key: str, path: Path, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"{path}: {key} is {value!r}; it must be a whole number of 1 or more")
    return value
