"""What config.json says of a model (Hugging Face layout, old and new key names)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.models.checkpoint import CheckpointError, read_json
from runtime.models.model_config import ModelConfig, parse_dtype, positive
from runtime.models.rope import Rope, parse_rope

# model types whose layers `compact_decoder` has; all others go over the bridge to `transformers`
COMPACT_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
# what `transformers` assumes where these families' config.json has no such key
_DEFAULT_KV_HEADS = {"mistral": 8, "qwen2": 32, "qwen3": 32}
_DEFAULT_HEAD_SIZE = {"qwen3": 128}
_DEFAULT_WINDOW = 4096
_DEFAULT_FULL_LAYERS = 28


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
