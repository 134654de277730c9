"""What config.json, or the metadata of a GGUF file, says of a model (old and new key names)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from runtime.checkpoints.decoder_sizes import (
    is_compact,
    parse_quantization,
    positive,
    require_compact,
)
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import gguf_file, read_model_config
from runtime.checkpoints.model_facts import Entries, read_all_entries, sizes_of
from runtime.models.model_config import ModelConfig, fields_of
from runtime.models.rope import Rope, parse_rope

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


def read_config(checkpoint: Path, entries: Callable[[], Entries] | None = None) -> ModelConfig:
    """The config of a checkpoint: a CompactConfig, or a BridgeConfig for a model that only
    `transformers` knows. `entries` are as in `read_sizes`. Raises CheckpointError."""
    raw, path = read_model_config(checkpoint)
    if quantization := parse_quantization(raw, path=path):
        raise CheckpointError(
            f"{path}: quantization_config asks for {quantization} weights, which HelixWeb's own "
            "engine does not compute; install vLLM on the node (helix-agent install-engine vllm), "
            "or choose the checkpoint in bfloat16, float16 or float32"
        )
    if gguf_file(checkpoint) is not None:
        require_compact(raw, path=path)
    if is_compact(raw):
        return parse_compact(raw, path=path)
    from runtime.models.bridge_config import read_bridge_config  # loads transformers: seconds

    return read_bridge_config(checkpoint, raw, entries or partial(read_all_entries, checkpoint))


def parse_compact(raw: Mapping[str, Any], *, path: Path) -> CompactConfig:
    """The content of a config.json; `path` is named in errors. Raises CheckpointError."""
    sizes, family = sizes_of(raw, dict, source=path), raw.get("model_type")  # reads no headers
    try:
        rope = parse_rope(raw, sizes.head_size)
        rms_norm_eps = float(raw.get("rms_norm_eps", 1e-6))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: rms_norm_eps: {error}") from None
    return CompactConfig(
        **fields_of(sizes),
        rms_norm_eps=rms_norm_eps,
        rope=rope,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        windows=_windows(raw, sizes.num_layers, path=path),
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
