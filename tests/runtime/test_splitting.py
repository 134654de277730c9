"""Which models can be cut into stages, by their config.json alone."""

from typing import Any

import pytest

from runtime.checkpoints.splitting import why_not_split
from runtime.engine.backend import CannotRun
from runtime.engine.choosing import choose
from runtime.protocol.engines import EngineSettings

# what a config.json has beside the sizes of any family
SPLIT: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "gemma 3": {
        "model_type": "gemma3_text",
        "layer_types": ["sliding_attention", "full_attention"],
        "head_dim": 256,
        "num_key_value_heads": 4,
    },
    "llama 4": {
        "model_type": "llama4_text",
        "layer_types": ["chunked_attention", "full_attention"],
    },
    "deepseek v3": {"model_type": "deepseek_v3", "kv_lora_rank": 512, "head_dim": 64},
    "granite 4 without state": {
        "model_type": "granitemoehybrid",
        "layer_types": ["attention", "attention"],
        "mamba_d_state": 256,
    },
    "gemma 4 whose pages are alike": {
        "model_type": "gemma4_text",
        "head_dim": 256,
        "num_key_value_heads": 4,
        "global_head_dim": 512,
        "num_global_key_value_heads": 2,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
    },
}
WHOLE: dict[str, tuple[dict[str, Any], str]] = {
    "mamba": ({"model_type": "mamba", "state_size": 16}, "keep a state"),
    "jamba": ({"model_type": "jamba", "attn_layer_period": 8, "mamba_d_state": 16}, "mamba"),
    "bamba": ({"model_type": "bamba", "mamba_d_state": 256}, "mamba"),
    "falcon h1": ({"model_type": "falcon_h1", "mamba_d_state": 256}, "mamba"),
    "granite 4": (
        {"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"]},
        "of kind mamba",
    ),
    "nemotron h": (
        {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*-"},
        "of kind M-M*-",
    ),
    "nemotron h by layer": (
        {"model_type": "nemotron_h", "layers_block_type": ["linear_attention", "moe"]},
        "of kind linear_attention, moe",
    ),
    "qwen3 next": (
        {"model_type": "qwen3_next", "linear_num_value_heads": 32},
        "keep a state (linear_num_value_heads)",
    ),
    "qwen3 next by layer": (
        {"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]},
        "of kind linear_attention",
    ),
    "lfm2": ({"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}, "of kind conv"),
    "recurrent gemma": (
        {"model_type": "recurrent_gemma", "block_types": ["recurrent", "attention"]},
        "of kind recurrent",
    ),
    "gemma 3n": (
        {"model_type": "gemma3n_text", "num_kv_shared_layers": 15},
        "read the KV cache of earlier ones",
    ),
    "gemma 4 small": (
        {"model_type": "gemma4_text", "hidden_size_per_layer_input": 256},
        "needs the token ids",
    ),
    "gemma 4": (
        {
            "model_type": "gemma4_text",
            "head_dim": 256,
            "num_key_value_heads": 16,
            "global_head_dim": 512,
            "num_global_key_value_heads": 4,
        },
        "different sizes",
    ),
    "mimo v2": (
        {
            "model_type": "mimo_v2_flash",
            "head_dim": 192,
            "num_key_value_heads": 4,
            "swa_num_key_value_heads": 8,
        },
        "different sizes",
    ),
    "deepseek v3.2": ({"model_type": "deepseek_v32", "index_topk": 2048}, "keep an index"),
    "heads by layer": ({"model_type": "openelm", "num_key_value_heads": [3, 4]}, "different sizes"),
    "longcat": ({"model_type": "longcat_flash"}, "two KV caches"),
    "gpt 2": ({"model_type": "gpt2"}, "positions to its token embeddings"),
    "qwen3 vl": (
        {
            "model_type": "qwen3_vl",
            "vision_config": {"deepstack_visual_indexes": [8]},
            "text_config": {},
        },
        "pictures or sound",
    ),
    "t5": ({"model_type": "t5", "is_encoder_decoder": True}, "one direction"),
}


@pytest.mark.parametrize("name", SPLIT)
def test_models_with_paged_keys_and_values_can_be_split(name: str) -> None:
    assert why_not_split(SPLIT[name]) is None


@pytest.mark.parametrize("name", WHOLE)
def test_other_models_are_refused_with_the_reason(name: str) -> None:
    config, told = WHOLE[name]
    assert told in (why_not_split(config) or "")


@pytest.mark.parametrize("quantization", ["", "awq-4bit"])
def test_a_stage_refuses_them_whatever_its_engine(quantization: str) -> None:
    settings = EngineSettings(python="/opt/vllm/bin/python")
    with pytest.raises(CannotRun, match="two KV caches; run it as instances"):
        choose(settings, WHOLE["longcat"][0], is_gguf=False, quantization=quantization)
