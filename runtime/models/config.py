"""What config.json says of a model (Hugging Face layout, old and new key names)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runtime.models.checkpoint import CheckpointError, read_json
from runtime.models.rope import Rope, parse_rope

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
# model types whose layers `compact_decoder` has; all others go over the bridge to `transformers`
COMPACT_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
# what `transformers` assumes where these families' config.json has no such key
_DEFAULT_KV_HEADS = {"mistral": 8, "qwen2": 32, "qwen3": 32}
_DEFAULT_HEAD_SIZE = {"qwen3": 128}
_DEFAULT_WINDOW = 4096
_DEFAULT_FULL_LAYERS = 28


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactConfig(ModelConfig):
    """A model of one of our own families.

    `qkv_bias`: query, key and value have a bias (Qwen2). `qk_norm`: queries and keys are normed
    per head before they are rotated (Qwen3). `windows`: per layer, how many of the last tokens a
    row sees, itself included; None for all (Mistral, long Qwen2).
    """

    rms_norm_eps: float
    rope: Rope
    qkv_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]


def read_config(checkpoint: Path) -> ModelConfig:
    """The config of a checkpoint directory: a CompactConfig, or a BridgeConfig for a model that
    only `transformers` knows. Raises CheckpointError."""
    path = checkpoint / "config.json"
    raw = read_json(path)
    if is_compact(raw):
        return parse_compact(raw, path=path)
    from runtime.models.bridge_config import read_bridge_config  # loads transformers: seconds

    return read_bridge_config(checkpoint, raw)


def is_compact(raw: Mapping[str, Any]) -> bool:
    """Whether our own decoder has everything that this config.json asks for."""
    family = raw.get("model_type")
    rope = raw.get("rope_parameters") or {}
    return (
        family in COMPACT_FAMILIES
        and raw.get("hidden_act", "silu") == "silu"
        and not raw.get("mlp_bias")
        # Qwen2 has its bias by nature and no such key; elsewhere it means an output bias as well
        and (family == "qwen2" or not raw.get("attention_bias"))
        and (rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1) == 1
    )


def parse_compact(raw: Mapping[str, Any], *, path: Path) -> CompactConfig:
    """The content of a config.json; `path` is named in errors. Raises CheckpointError."""
    dtype = parse_dtype(raw, path=path)
    family = raw.get("model_type")
    num_layers = positive(raw, "num_hidden_layers", path=path)
    num_heads = positive(raw, "num_attention_heads", path=path)
    hidden = positive(raw, "hidden_size", path=path)
    inner = positive(raw, "intermediate_size", path=path)
    num_kv_heads = positive(
        raw,
        "num_key_value_heads",
        path=path,
        default=_DEFAULT_KV_HEADS.get(str(family), num_heads),
    )
    head_size = positive(
        raw,
        "head_dim",
        path=path,
        default=_DEFAULT_HEAD_SIZE.get(str(family), hidden // num_heads),
    )
    qkv_bias, qk_norm = family == "qwen2", family == "qwen3"
    heads = num_heads + 2 * num_kv_heads
    layer = (heads + num_heads) * head_size * hidden + 3 * inner * hidden + 2 * hidden
    layer += heads * head_size * int(qkv_bias) + 2 * head_size * int(qk_norm)
    try:
        rope = parse_rope(raw)
        rms_norm_eps = float(raw.get("rms_norm_eps", 1e-6))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: rms_norm_eps: {error}") from None
    return CompactConfig(
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        vocab_size=positive(raw, "vocab_size", path=path),
        layer_parameters=(layer,) * num_layers,
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        max_position_embeddings=positive(raw, "max_position_embeddings", path=path),
        dtype=dtype,
        rms_norm_eps=rms_norm_eps,
        rope=rope,
        qkv_bias=qkv_bias,
        qk_norm=qk_norm,
        windows=_windows(raw, num_layers, path=path),
    )


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


def _windows(raw: Mapping[str, Any], num_layers: int, *, path: Path) -> tuple[int | None, ...]:
    """Mistral slides in all layers; Qwen2 and Qwen3 where `layer_types` or, in older files,
    `max_window_layers` says so; Llama never."""
    family = raw.get("model_type")
    slides = family == "mistral" or (family != "llama" and bool(raw.get("use_sliding_window")))
    if not slides or raw.get("sliding_window", _DEFAULT_WINDOW) is None:
        return (None,) * num_layers
    window = positive(raw, "sliding_window", path=path, default=_DEFAULT_WINDOW)
    if family == "mistral":
        return (window,) * num_layers
    kinds = raw.get("layer_types")
    if kinds is None:
        full = int(raw.get("max_window_layers", _DEFAULT_FULL_LAYERS))
        return tuple(None if layer < full else window for layer in range(num_layers))
    known = {"full_attention": None, "sliding_attention": window}
    if len(kinds) != num_layers or not set(kinds) <= set(known):
        raise CheckpointError(
            f"{path}: layer_types is {kinds!r}; it must name full_attention or sliding_attention "
            f"for each of {num_layers} layers"
        )
    return tuple(known[kind] for kind in kinds)
