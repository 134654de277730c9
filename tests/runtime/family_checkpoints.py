"""Tiny random checkpoints of each family, made by `transformers` itself, and its answers."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.runtime.vllm_families import Family

VOCABULARY = 300
LAYERS = 6
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
}
_SLIDING = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 3}
_GEMMA = {"head_dim": 8, "sliding_window": 7, "query_pre_attn_scalar": 16}


COMPACT = {
    "llama 2": Family(model_type="llama", changes={}),
    "llama 3": Family(model_type="llama", changes={"rope_parameters": _LLAMA3}),
    "llama linear rope": Family(
        model_type="llama",
        changes={"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "llama dynamic rope": Family(
        model_type="llama",
        changes={"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "llama yarn": Family(model_type="llama", changes={"rope_parameters": _YARN}),
    "mistral": Family(model_type="mistral", changes={"sliding_window": None, "head_dim": 12}),
    "mistral sliding": Family(model_type="mistral", changes={"sliding_window": 7}),
    "qwen2": Family(model_type="qwen2", changes={}),
    "qwen2 sliding": Family(model_type="qwen2", changes=_SLIDING),
    "qwen3 tied": Family(model_type="qwen3", changes={"head_dim": 16, "tie_word_embeddings": True}),
}
BRIDGED = {
    "gemma2": Family(
        model_type="gemma2",
        changes=_GEMMA | {"attn_logit_softcapping": 5.0, "tie_word_embeddings": True},
    ),
    "gemma3": Family(model_type="gemma3_text", changes=_GEMMA | {"tie_word_embeddings": True}),
    "phi3": Family(model_type="phi3", changes={}),
    "qwen3 moe": Family(
        model_type="qwen3_moe",
        changes={
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "mlp_only_layers": [1],
        },
    ),
    "mixtral": Family(
        model_type="mixtral", changes={"num_local_experts": 4, "num_experts_per_tok": 2}
    ),
    "llama with biases": Family(
        model_type="llama", changes={"attention_bias": True, "mlp_bias": True}
    ),
}
FAMILIES = COMPACT | BRIDGED


def save(
    family: Family,
    directory: Path,
    *,
    seed: int,
    dtype: torch.dtype = torch.float32,
    max_shard_size: str = "60KB",
) -> None:
    """Random weights, norms and biases too, spread wide enough that answers do not collapse."""
    config = AutoConfig.for_model(family.model_type, **(_SIZES | family.changes))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter += noise * 0.1
            else:
                parameter.copy_(noise * 0.12)
    model.to(dtype).save_pretrained(directory, max_shard_size=max_shard_size)


def load(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The whole model under `transformers`."""
    config = AutoConfig.from_pretrained(directory)
    # SDPA knows no caps, and leaves them out
    has_caps = getattr(config, "attn_logit_softcapping", None) is not None
    return AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager" if has_caps else None
    ).eval()


def generate(model: Any, prompt: list[int], *, max_tokens: int) -> list[int]:
    """Its greedy continuation."""
    ids_1T = torch.tensor([prompt])
    with torch.inference_mode():
        whole_1T = model.generate(
            ids_1T,
            attention_mask=torch.ones_like(ids_1T),
            do_sample=False,
            max_new_tokens=max_tokens,
        )
    found: list[int] = whole_1T[0, len(prompt) :].tolist()
    return found
