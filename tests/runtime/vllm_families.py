"""What is tested on vLLM's model code: families, as tiny models, and kinds of weights.

Imports neither torch nor vLLM: `docs/generate/engine_table.py` shows what is listed here.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A model type and what its config has beside the common sizes."""

    model_type: str
    changes: dict[str, Any]


_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
}
_WIDE = {"hidden_size": 128, "intermediate_size": 256}
_SIZES = _WIDE | {"head_dim": 32}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
_LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED = _EXPERTS | {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rope_parameters": _YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
}
_SCALES = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.2,
}
_SLIDING = ["sliding_attention", "sliding_attention", "full_attention"] * 2

VLLM_FAMILIES = {
    "Llama": Family(model_type="llama", changes=_SIZES),
    "Mistral, sliding": Family(model_type="mistral", changes=_SIZES | {"sliding_window": 7}),
    "Ministral 3": Family(model_type="ministral3", changes=_SIZES),
    "Qwen2": Family(model_type="qwen2", changes=_WIDE),
    "Qwen2-MoE": Family(
        model_type="qwen2_moe",
        changes=_WIDE | _EXPERTS | {"num_experts": 8, "shared_expert_intermediate_size": 64},
    ),
    "Qwen3": Family(model_type="qwen3", changes=_SIZES | {"tie_word_embeddings": True}),
    "Qwen3-MoE": Family(model_type="qwen3_moe", changes=_SIZES | _EXPERTS | {"num_experts": 8}),
    "Mixtral": Family(
        model_type="mixtral", changes=_SIZES | _LOCAL_EXPERTS | {"sliding_window": None}
    ),
    "Gemma": Family(model_type="gemma", changes=_SIZES | {"tie_word_embeddings": True}),
    "Gemma 2": Family(
        model_type="gemma2",
        changes=_SIZES
        | {
            "sliding_window": 7,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
            "tie_word_embeddings": True,
        },
    ),
    "Gemma 3": Family(
        model_type="gemma3_text",
        changes=_SIZES
        | {
            "sliding_window": 7,
            "query_pre_attn_scalar": 32,
            "layer_types": _SLIDING,
            "tie_word_embeddings": True,
        },
    ),
    "gpt-oss": Family(
        model_type="gpt_oss",
        changes=_SIZES
        | _LOCAL_EXPERTS
        | {
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "rope_parameters": _YARN | {"truncate": False},
        },
    ),
    "DeepSeek-V2, yarn": Family(
        model_type="deepseek_v2",
        changes=_WIDE | _ROUTED | _LATENT | {"n_routed_experts": 4, "topk_method": "greedy"},
    ),
    "DeepSeek-V3, yarn": Family(
        model_type="deepseek_v3",
        changes=_WIDE
        | _ROUTED
        | _LATENT
        | {
            "q_lora_rank": 48,
            "n_group": 2,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "routed_scaling_factor": 1.5,
            "norm_topk_prob": True,
            "rope_parameters": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "GLM-4": Family(model_type="glm4", changes=_SIZES | {"partial_rotary_factor": 0.5}),
    "GLM-4-MoE": Family(model_type="glm4_moe", changes=_SIZES | _ROUTED | {"use_qk_norm": True}),
    "Phi-3": Family(model_type="phi3", changes=_WIDE),
    "Phi-4-mini, longrope": Family(
        model_type="phi3",
        changes=_WIDE
        | {
            "partial_rotary_factor": 1.0,
            "original_max_position_embeddings": 64,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0] * 16,
                "long_factor": [2.0] * 16,
            },
        },
    ),
    "OLMoE": Family(
        model_type="olmoe", changes=_WIDE | {"num_experts": 8, "num_experts_per_tok": 2}
    ),
    "Granite": Family(model_type="granite", changes=_WIDE | _SCALES),
    "Granite MoE": Family(model_type="granitemoe", changes=_WIDE | _LOCAL_EXPERTS | _SCALES),
    "Granite MoE, shared": Family(
        model_type="granitemoeshared",
        changes=_WIDE | _LOCAL_EXPERTS | {"shared_intermediate_size": 64},
    ),
    "Cohere": Family(
        model_type="cohere", changes=_WIDE | {"tie_word_embeddings": True, "logit_scale": 0.25}
    ),
    # its window is never full: that of vLLM is one token longer than that of transformers
    "Cohere 2": Family(
        model_type="cohere2",
        changes=_SIZES | {"tie_word_embeddings": True, "sliding_window": 128, "logit_scale": 0.25},
    ),
    "EXAONE 4": Family(
        model_type="exaone4",
        changes=_SIZES | {"sliding_window": 7, "layer_types": _SLIDING},
    ),
    "ERNIE 4.5": Family(model_type="ernie4_5", changes=_SIZES),
    "GLM-4.7-Flash, yarn": Family(
        model_type="glm4_moe_lite",
        changes=_WIDE
        | _ROUTED
        | _LATENT
        | {
            "q_lora_rank": 48,
            "n_group": 2,
            "rope_parameters": _YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "Llama 4, text": Family(
        model_type="llama4_text",
        changes=_SIZES
        | {
            "num_local_experts": 4,
            "intermediate_size_mlp": 192,
            "attention_chunk_size": 16,
            "interleave_moe_layer_step": 2,
            "no_rope_layers": [1, 1, 1, 0, 1, 1],
        },
    ),
    "Nemotron": Family(model_type="nemotron", changes=_SIZES),
    "OLMo 2": Family(model_type="olmo2", changes=_WIDE),
    "Phi": Family(model_type="phi", changes=_WIDE | {"partial_rotary_factor": 0.5}),
    "GLM": Family(model_type="glm", changes=_SIZES | {"partial_rotary_factor": 0.5}),
    "SmolLM3": Family(model_type="smollm3", changes=_WIDE),
    "StarCoder 2": Family(model_type="starcoder2", changes=_WIDE),
    "StableLM": Family(
        model_type="stablelm",
        changes=_WIDE | {"use_qkv_bias": True, "partial_rotary_factor": 0.25},
    ),
}

# kinds of weights by the family that is tested: stages answer as whole vLLM does; stages compute
# what the rounded weights would; CPUs without AMX have no kernel
EQUAL_TO_VLLM = {kind: "Llama" for kind in ("w4a16", "w8a8", "awq", "gptq")}
NEAR_ROUNDED = {"fp8": "Llama"}
REFUSED_ON_CPUS = {"w8a16": "Llama", "fp8 blocks": "Llama", "mxfp4": "gpt-oss"}
