"""Families on vLLM's model code, cut into overlapping stages, against `transformers`.

Weights are random, in float32: every token must be the same. Runs in vLLM's environment only
(`make test-vllm`).
"""

from pathlib import Path

import pytest
from engine_under_test import IS_VLLM
from family_checkpoints import LAYERS, generate, load, save
from stage_cluster import StageCluster
from test_families import check_equal
from vllm_families import VLLM_FAMILIES

pytestmark = pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm")


@pytest.fixture(autouse=True)
def no_rotations_of_other_models() -> None:
    """vLLM keeps them by their sizes, and its ERNIE 4.5 changes what it got: the next model in a
    process would rotate as that does. A stage's process has one model."""
    from vllm.model_executor.layers import rotary_embedding

    rotary_embedding._ROPE_DICT.clear()


@pytest.mark.parametrize("name", VLLM_FAMILIES)
def test_stages_of_vllm_answer_as_the_whole_model_under_transformers(
    name: str, tmp_path: Path
) -> None:
    check_equal(VLLM_FAMILIES[name], tmp_path, seed=0, max_tokens=12)


def test_a_chain_of_both_engines_answers_as_the_whole_model(tmp_path: Path) -> None:
    save(VLLM_FAMILIES["Llama"], tmp_path, seed=1)
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
