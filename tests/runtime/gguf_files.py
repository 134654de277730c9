"""GGUF files of tiny random models, as llama.cpp writes them, by the `gguf` package."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from numpy.typing import NDArray
from safetensors.numpy import load_file

QuantType = GGMLQuantizationType
_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OUTSIDE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "rope_freqs": "rope_freqs",
}
# bytes of a block of 256 values, and where its two half-precision scales are with what they are
_BLOCKS = {
    QuantType.Q4_K: (144, {0: 4e-4, 2: 3e-3}),
    QuantType.Q5_K: (176, {0: 2e-4, 2: 3e-3}),
    QuantType.Q6_K: (210, {208: 5e-5}),
}


def write_gguf(
    path: Path,
    folder: Path,
    *,
    quantized: QuantType = QuantType.F32,
    metadata: dict[str, Any] | None = None,
) -> Path:
    """The model in `folder` (Hugging Face layout) as one file; its matrices in `quantized`.

    The gguf package cannot quantize to K types: there the blocks are random.
    """
    config = json.loads((folder / "config.json").read_text())
    tensors: dict[str, NDArray[np.float32]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    # llama.cpp has no architecture of its own for Mistral
    family = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    writer = GGUFWriter(path, family)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    for key, value in (metadata or {}).items():
        add_value(writer, key, value)
    dice = np.random.default_rng(0)
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        if module.startswith("model.layers."):
            layer, _, part = module.removeprefix("model.layers.").partition(".")
            module = f"blk.{layer}.{_PARTS[part]}"
            if family == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
                tensor = interleaved(tensor, heads if "q_proj" in part else kv_heads)
        else:
            module = _OUTSIDE[module]
        type_ = quantized if tensor.ndim == 2 else QuantType.F32
        writer.add_tensor(f"{module}.{kind}", stored(tensor, type_, dice), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def interleaved(tensor: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Query or key as llama.cpp rotates it."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def stored(
    tensor: NDArray[np.float32], type_: QuantType, dice: np.random.Generator
) -> NDArray[Any]:
    if type_ not in _BLOCKS:
        return np.ascontiguousarray(quants.quantize(np.ascontiguousarray(tensor), type_))
    block_bytes, scales = _BLOCKS[type_]
    rows, columns = tensor.shape
    blocks = dice.integers(0, 256, (rows, columns // 256, block_bytes), dtype=np.uint8)
    for at, scale in scales.items():
        found = np.float16(scale) * dice.uniform(0.5, 1.5, blocks.shape[:2])
        blocks[:, :, at : at + 2] = found.astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


def tokenizer_metadata(folder: Path) -> dict[str, Any]:
    """What `tokenizer.ggml` says of a byte-level tokenizer.json."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {each["content"] for each in tokenizer["added_tokens"]}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in special else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": vocabulary[settings["bos_token"]],
        "tokenizer.ggml.eos_token_id": vocabulary[settings["eos_token"]],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": settings["chat_template"],
    }
