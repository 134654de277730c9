"""Families on vLLM's model code, cut into overlapping stages, against `transformers`.

Weights are random, in float32: every token must be the same. Runs in vLLM's environment only
(`make test-vllm`).
"""

from pathlib import Path

import pytest
from engine_under_test import IS_VLLM
from family_checkpoints import LAYERS, Family, generate, load, save
from stage_cluster import StageCluster
from test_families import check_equal

pytestmark = pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
}
_SIZES = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}
FAMILIES = {
    "llama": Family(model_type="llama", changes=_SIZES),
    "mistral sliding": Family(model_type="mistral", changes=_SIZES | {"sliding_window": 7}),
    "qwen2": Family(model_type="qwen2", changes={"hidden_size": 128, "intermediate_size": 256}),
    "qwen3 tied": Family(model_type="qwen3", changes=_SIZES | {"tie_word_embeddings": True}),
    "qwen3 moe": Family(model_type="qwen3_moe", changes=_SIZES | _EXPERTS | {"num_experts": 8}),
    "mixtral": Family(
        model_type="mixtral",
        changes=_SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    ),
    "gemma3": Family(
        model_type="gemma3_text",
        changes=_SIZES
        | {
            "sliding_window": 7,
            "query_pre_attn_scalar": 32,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
            "tie_word_embeddings": True,
        },
    ),
    "gpt-oss": Family(
        model_type="gpt_oss",
        changes=_SIZES
        | {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "rope_parameters": _YARN | {"truncate": False},
        },
    ),
    "deepseek v2 yarn": Family(
        model_type="deepseek_v2",
        changes=_EXPERTS
        | {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_key_value_heads": 4,
            "q_lora_rank": None,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "topk_method": "greedy",
            "n_group": 1,
            "topk_group": 1,
            "rope_parameters": _YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
        },
    ),
    "phi3": Family(model_type="phi3", changes={"hidden_size": 128, "intermediate_size": 256}),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_stages_of_vllm_answer_as_the_whole_model_under_transformers(
    name: str, tmp_path: Path
) -> None:
    check_equal(FAMILIES[name], tmp_path, seed=0, max_tokens=12)


def test_a_chain_of_both_engines_answers_as_the_whole_model(tmp_path: Path) -> None:
    save(FAMILIES["llama"], tmp_path, seed=1)
    oracle = load(tmp_path)
    layers = {"a": (0, 2), "b": (1, 5), "c": (4, LAYERS)}
    cluster = StageCluster(tmp_path, layers, max_context_tokens=64, engines={"b": "helix"})
    paths = [
        [("a", 0, 2), ("b", 2, 5), ("c", 5, LAYERS)],
        [("a", 0, 1), ("b", 1, 4), ("c", 4, LAYERS)],
    ]
    prompts = {request: [7 + 3 * (request + at) % 200 for at in range(20)] for request in range(8)}
    for request, prompt in prompts.items():
        cluster.prompt(request, prompt, paths[request % 2])
    cluster.run_all()
    for request, prompt in prompts.items():
        expected = generate(oracle, prompt, max_tokens=16)
        assert cluster.answers[request, 1].token_ids == expected
    cluster.release_all()
