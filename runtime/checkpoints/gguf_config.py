"""What config.json of a checkpoint would say, from the metadata of a GGUF file."""

import math
from typing import Any

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.gguf_header import GgufHeader

# llama.cpp writes Mistral models as llama
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
_ROPE_DIVISORS = "rope_freqs.weight"
# ggml's numbers of unquantized types; weights of all others are computed in bfloat16
_DTYPE_OF_TYPE = {0: "float32", 1: "float16"}
_COMPUTED_IN = "bfloat16"
_HEAD = "output.weight"
# where a token that ends an answer is named
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


def config_of(header: GgufHeader) -> dict[str, Any]:
    """The content of a config.json. Raises CheckpointError for what our decoder cannot run."""
    family = header.get("general.architecture")
    _refuse_unsupported(header, family)

    def value(key: str) -> Any:
        return header.get(f"{family}.{key}")

    vocabulary = value("vocab_size") or header.length("tokenizer.ggml.tokens")
    config = {
        "model_type": family,
        "num_hidden_layers": value("block_count"),
        "hidden_size": value("embedding_length"),
        "intermediate_size": value("feed_forward_length"),
        "num_attention_heads": value("attention.head_count"),
        "num_key_value_heads": value("attention.head_count_kv"),
        "head_dim": value("attention.key_length") or _usual_head_size(header, str(family)),
        "vocab_size": vocabulary,
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(header, str(family)),
        "tie_word_embeddings": _HEAD not in header.tensors,
        "dtype": _dtype(header),
        "bos_token_id": header.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": list(
            dict.fromkeys(
                token for key in _ENDS if (token := header.get(f"tokenizer.ggml.{key}")) is not None
            )
        ),
    }
    if family == "mistral":  # llama.cpp knows no window in the others
        config["sliding_window"] = value("attention.sliding_window")
    return {key: given for key, given in config.items() if given is not None}


def _refuse_unsupported(header: GgufHeader, family: object) -> None:
    path = header.path
    if family not in ARCHITECTURES:
        raise CheckpointError(
            f"{path}: general.architecture is {str(family)[:80]!r}; of GGUF files "
            f"{', '.join(ARCHITECTURES)} can be run: give the model as a folder with safetensors"
        )
    parts = header.get("split.count")
    if parts is not None and parts != 1:
        raise CheckpointError(
            f"{path} is one of {parts} parts (split.count); join them first: "
            "llama-gguf-split --merge"
        )
    experts = header.get(f"{family}.expert_count")
    if experts:
        raise CheckpointError(
            f"{path}: {family}.expert_count is {experts}; of GGUF files only models without "
            "experts can be run: give the model as a folder with safetensors"
        )


def _usual_head_size(header: GgufHeader, family: str) -> int | None:
    if family in ("llama", "mistral"):
        size = header.get(f"{family}.rope.dimension_count")
        return None if size is None else int(size)
    return None


def _rope(header: GgufHeader, family: str) -> dict[str, Any]:
    def value(key: str) -> Any:
        return header.get(f"{family}.rope.{key}")

    rope: dict[str, Any] = {"rope_type": "default"}
    if value("freq_base") is not None:
        rope["rope_theta"] = value("freq_base")
    kind = value("scaling.type")
    if _ROPE_DIVISORS in header.tensors:
        rope |= {"rope_type": "divisors", "divisors": header.floats(_ROPE_DIVISORS)}
    elif kind in ("linear", "yarn"):
        rope |= {"rope_type": kind, "factor": value("scaling.factor")}
        original = value("scaling.original_context_length")
        if original is not None:
            rope["original_max_position_embeddings"] = original
        amplitude, factor = value("scaling.attn_factor"), value("scaling.factor")
        if kind == "yarn" and isinstance(amplitude, float) and isinstance(factor, float):
            rope["attention_factor"] = amplitude * (0.1 * math.log(max(1.0, factor)) + 1.0)
    elif kind not in (None, "none"):
        raise CheckpointError(
            f"{header.path}: {family}.rope.scaling.type is {str(kind)[:80]!r}; linear and yarn "
            "are supported: choose another checkpoint"
        )
    return rope


def _dtype(header: GgufHeader) -> str:
    """Of weights and activations: as the matrices are stored, bfloat16 for quantized ones."""
    matrix = header.tensors.get("blk.0.ffn_down.weight")
    return _COMPUTED_IN if matrix is None else _DTYPE_OF_TYPE.get(matrix.type_number, _COMPUTED_IN)
