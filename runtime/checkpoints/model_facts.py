"""What a checkpoint says of its model: read from config.json, safetensors headers or GGUF metadata.

Loads no torch and no weights, so the site and agents can do it. Sizes of our own families follow
from config.json; those of others are counted in the headers.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from pathlib import Path, PurePath
from typing import Any

from runtime.checkpoints.decoder_sizes import (
    DTYPE_BYTES,
    DecoderSizes,
    is_compact,
    parse_dtype_name,
    parse_quantization,
    positive,
    require_compact,
)
from runtime.checkpoints.engine_fit import GGUF
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.metadata import gguf_file, read_model_config
from runtime.checkpoints.safetensors_header import TensorEntry, read_entries
from runtime.checkpoints.splitting import why_no_decoder, why_not_split
from runtime.checkpoints.tensor_holders import tensor_holders
from runtime.protocol.checkpoint_looks import ModelFacts

TOKEN_BYTES = 4  # an int32 token id on the wire
_LONGEST_NAME = 120
# what other families call these keys of config.json
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
# what `transformers` assumes where these families' config.json has no such key
_DEFAULT_KV_HEADS = {"mistral": 8, "qwen2": 32, "qwen3": 32}
_DEFAULT_HEAD_SIZE = {"qwen3": 128}
_LAYER = re.compile(r"^(.*?)\.(\d+)\.")
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output)\.")

Entries = Mapping[str, TensorEntry]


def read_facts(checkpoint: Path) -> ModelFacts:
    """The facts of a folder in Hugging Face layout, a GGUF file, or a folder with one.

    Raises CheckpointError.
    """
    if not checkpoint.exists():
        raise CheckpointError(
            f"{checkpoint} does not exist; give the folder of a Hugging Face checkpoint, or a GGUF "
            "file"
        )
    gguf = gguf_file(checkpoint)
    if gguf is None and not checkpoint.is_dir():
        raise CheckpointError(
            f"{checkpoint} is no GGUF file; give the folder of a Hugging Face checkpoint, or a "
            "file that ends in .gguf"
        )
    raw, source = read_model_config(checkpoint)
    if gguf is not None:
        require_compact(raw, path=source)
    else:
        listing, holders = tensor_holders(checkpoint)  # refuses a folder without weights
        missing = [file.name for file in sorted(set(holders.values())) if not file.is_file()]
        if missing:
            more = f" and {len(missing) - 1} more" if missing[1:] else ""
            raise CheckpointError(
                f"{listing} names {missing[0]}{more}, which {checkpoint} lacks; download the "
                "checkpoint again"
            )
    sizes = sizes_of(raw, partial(read_all_entries, checkpoint), source=source)
    name = checkpoint.stem if gguf == checkpoint else checkpoint.resolve().name
    facts = facts_from(raw, sizes, checkpoint=str(checkpoint), name=name)
    return facts if gguf is None else facts.model_copy(update={"dtype": f"{GGUF}-{facts.dtype}"})


def read_sizes(checkpoint: Path, entries: Callable[[], Entries] | None = None) -> DecoderSizes:
    """The sizes of a folder in Hugging Face layout; `entries` of all tensors, where the folder does
    not hold them all. Raises CheckpointError."""
    raw, source = read_model_config(checkpoint)
    return sizes_of(raw, entries or partial(read_all_entries, checkpoint), source=source)


def sizes_of(
    raw: Mapping[str, Any], entries: Callable[[], Entries], *, source: PurePath
) -> DecoderSizes:
    """By the content of config.json, named `source` in errors.

    `entries` of all tensors are asked for only where config.json does not suffice. Raises
    CheckpointError.
    """
    quantization = parse_quantization(raw, path=source)
    is_ours, family = is_compact(raw), str(raw.get("model_type"))
    if not is_ours:
        _refuse_unsupported(raw, source=source)
    dtype_name = parse_dtype_name(raw, path=source)
    num_layers = _of(raw, _LAYERS, source=source)
    hidden = _of(raw, _HIDDEN, source=source)
    inner = None if is_ours else 4 * hidden
    inner = positive(raw, "intermediate_size", path=source, default=inner)
    num_heads = _of(raw, _HEADS, source=source)
    num_kv_heads = _of(
        raw, _KV_HEADS, source=source, default=_DEFAULT_KV_HEADS.get(family, num_heads)
    )
    head_size = positive(
        raw, "head_dim", path=source, default=_DEFAULT_HEAD_SIZE.get(family, hidden // num_heads)
    )
    tied, element_bytes = bool(raw.get("tie_word_embeddings")), DTYPE_BYTES[dtype_name]
    if is_ours and not quantization:
        heads = num_heads + 2 * num_kv_heads
        layer = (heads + num_heads) * head_size * hidden + 3 * inner * hidden + 2 * hidden
        layer += heads * head_size * int(family == "qwen2") + 2 * head_size * int(family == "qwen3")
        layer_bytes = (layer * element_bytes,) * num_layers
    else:
        held = entries()
        of_number = None if quantization else element_bytes
        layer_bytes = _layer_bytes(held, num_layers, element_bytes=of_number, source=source)
        tied = tied or not (is_ours or any(_HEAD.search(name) for name in held))
    return DecoderSizes(
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        vocab_size=positive(raw, "vocab_size", path=source),
        layer_bytes=layer_bytes,
        tie_word_embeddings=tied,
        max_position_embeddings=_positions(raw, source=source),
        dtype_name=dtype_name,
        latent_size=_latent_size(raw, source=source),
        quantization=quantization,
    )


def facts_from(
    raw: Mapping[str, Any], sizes: DecoderSizes, *, checkpoint: str, name: str
) -> ModelFacts:
    """The sizes as bytes; `raw` is the content of config.json."""
    both = sizes.weights_bytes(0, sizes.num_layers) - sum(sizes.layer_bytes)
    return ModelFacts(
        checkpoint=checkpoint,
        name=_plain_name(name),
        architecture=str(raw.get("model_type", ""))[:80],
        dtype=sizes.weights_type,
        num_layers=sizes.num_layers,
        bytes_per_layer=sizes.bytes_per_layer,
        embedding_bytes=sizes.embedding_bytes,
        head_bytes=both - sizes.embedding_bytes,
        activation_bytes_per_token=sizes.hidden_size * sizes.element_bytes,
        token_bytes=TOKEN_BYTES,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_size,
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        vocab_size=sizes.vocab_size,
        max_context_tokens=sizes.max_position_embeddings,
        why_not_split=(why_not_split(raw) or "")[:300],
    )


def read_all_entries(checkpoint: Path) -> Entries:
    """What the headers of a folder in Hugging Face layout say. Raises CheckpointError."""
    _, holders = tensor_holders(checkpoint)
    files = sorted(set(holders.values()))
    return {name: entry for file in files for name, entry in read_entries(file).items()}


def _latent_size(raw: Mapping[str, Any], *, source: PurePath) -> int:
    """Of multi-head latent attention, which caches one vector instead of keys and values."""
    if not raw.get("kv_lora_rank"):
        return 0
    return positive(raw, "kv_lora_rank", path=source) + positive(
        raw, "qk_rope_head_dim", path=source
    )


def _of(
    raw: Mapping[str, Any], keys: tuple[str, ...], *, source: PurePath, default: int | None = None
) -> int:
    key = next((key for key in keys if raw.get(key) is not None), keys[0])
    return positive(raw, key, path=source, default=default)


def _refuse_unsupported(raw: Mapping[str, Any], *, source: PurePath) -> None:
    family = raw.get("model_type")
    if not isinstance(family, str) or not family:
        raise CheckpointError(
            f"{source}: model_type is {str(family)[:80]!r}; give the config.json of a language "
            "model"
        )
    reason = why_no_decoder(raw)
    if reason:
        raise CheckpointError(f"{source}: model_type {family[:80]!r} cannot be run: {reason}")


def _layer_bytes(
    entries: Entries, num_layers: int, *, element_bytes: int | None, source: PurePath
) -> tuple[int, ...]:
    """Weights of each layer: of the list of that many modules that weighs most. `element_bytes` of
    a number once it is loaded; None: as the files have it."""
    lists: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for name, entry in entries.items():
        found = _LAYER.match(name)
        if found is not None:
            lists[found[1]][int(found[2])] += (
                prod(entry.shape) * element_bytes if element_bytes else entry.nbytes
            )
    whole = [held for held in lists.values() if set(held) == set(range(num_layers))]
    if not whole:
        counts = ", ".join(f"{len(held)} in {name}" for name, held in sorted(lists.items())[:5])
        raise CheckpointError(
            f"{source}: num_hidden_layers is {num_layers}, the weights hold other layers "
            f"({counts or 'none'}); download the checkpoint again"
        )
    chosen = max(whole, key=lambda held: sum(held.values()))
    return tuple(chosen[layer] for layer in range(num_layers))


def _positions(raw: Mapping[str, Any], *, source: PurePath) -> int:
    """With `longrope` the original context, which is what a KV cache can keep."""
    most = _of(raw, _POSITIONS, source=source)
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = (rope.get("rope_type") or rope.get("type")) if isinstance(rope, Mapping) else None
    if kind != "longrope":
        return most
    told = {**raw, **rope}
    return min(most, positive(told, "original_max_position_embeddings", path=source, default=most))


def _plain_name(name: str) -> str:
    """What a model may be called: letters, digits and . _ - only."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_LONGEST_NAME] or "model"
