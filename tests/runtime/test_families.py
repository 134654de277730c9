"""Every family, cut in overlapping stages, against `transformers` generating from the whole."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from family_checkpoints import (
    COMPACT,
    FAMILIES,
    LAYERS,
    VOCABULARY,
    Family,
    generate,
    load,
    save,
)
from stage_cluster import GREEDY, StageCluster

from runtime.models.config import CompactConfig, read_config
from runtime.models.dense_attention import attend_densely
from runtime.models.weights import load_decoder
from runtime.protocol.data import Sampling

STAGES = {
    "a": (0, 3),
    "b": (0, 2),
    "c": (1, 5),
    "d": (2, 6),
    "e": (3, 6),
    "f": (4, 6),
    "whole": (0, 6),
}
PATHS = (
    (("a", 0, 3), ("e", 3, 6)),
    (("b", 0, 2), ("d", 2, 6)),
    (("b", 0, 1), ("c", 1, 4), ("e", 4, 6)),  # enters c and e in their middle, leaves b early
    (("a", 0, 3), ("c", 3, 5), ("f", 5, 6)),
    (("a", 0, 2), ("c", 2, 4), ("d", 4, 6)),
)
ALONE = (("whole", 0, LAYERS),)
FEW, REQUESTS = 8, 16
SAMPLED = range(100, 104)  # requests beside them that draw their tokens
# The others, which differ from one of these by a setting, are compared by `make soak`.
LATER = {
    "llama 2", "llama linear rope", "llama dynamic rope", "mistral", "qwen2", "mixtral",
}  # fmt: skip
BY_TIER = [
    pytest.param(name, marks=[pytest.mark.families] if name in LATER else []) for name in FAMILIES
]
TOLERANCES = {torch.bfloat16: 0.05, torch.float16: 0.006}


def check_equal(
    family: Family, directory: Path, *, seed: int, max_tokens: int, requests: int = REQUESTS
) -> None:
    """All requests at once, over random paths, with steps of random size on each stage.

    Those that take the likeliest tokens get those of `transformers`, those that draw them get what
    one node draws that has all layers.
    """
    save(family, directory, seed=seed)
    dice = random.Random(seed)
    steps = {name: dice.randint(4, 24) for name in STAGES}
    prompts = [
        [dice.randrange(3, VOCABULARY) for _ in range(dice.choice((1, 2, 5, 11, 23, 37)))]
        for _ in range(requests)
    ]
    # before stages are made: vLLM changes classes of transformers that it uses
    oracle = load(directory)
    expected = [generate(oracle, prompt, max_tokens=max_tokens) for prompt in prompts]
    cluster = StageCluster(
        directory,
        STAGES,
        max_context_tokens=64,
        smaller_steps=steps,
    )
    for request, prompt in enumerate(prompts):
        path = PATHS[request % len(PATHS)]
        cluster.prompt(request, prompt, path, sampling=replace(GREEDY, max_tokens=max_tokens))
    drawn = {
        request: Sampling(temperature=0.9, top_p=0.95, top_k=0, seed=request, max_tokens=max_tokens)
        for request in SAMPLED
    }
    for request, sampling in drawn.items():
        cluster.prompt(
            request, prompts[request % requests], PATHS[request % len(PATHS)], sampling=sampling
        )
    cluster.run_all()
    for request, sampling in drawn.items():
        cluster.prompt(1000 + request, prompts[request % requests], ALONE, sampling=sampling)
        cluster.run_all()
        there, alone = cluster.answers[request, 1], cluster.answers[1000 + request, 1]
        assert there.token_ids == alone.token_ids, request
    assert any(
        cluster.answers[request, 1].token_ids != cluster.answers[request % requests, 1].token_ids
        for request in SAMPLED
    )
    for request, prompt in enumerate(prompts):
        assert cluster.answers[request, 1].token_ids == expected[request], (request, prompt)
    cluster.release_all()


@pytest.mark.parametrize("name", BY_TIER)
def test_any_split_gives_the_tokens_of_transformers(name: str, tmp_path: Path) -> None:
    check_equal(FAMILIES[name], tmp_path, seed=1, max_tokens=6, requests=FEW)


@pytest.mark.families
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("name", FAMILIES)
def test_any_split_gives_the_tokens_of_transformers_again_and_longer(
    name: str, seed: int, tmp_path: Path
) -> None:
    check_equal(FAMILIES[name], tmp_path, seed=seed, max_tokens=20)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_families_of_our_own_decoder_need_no_bridge(name: str, tmp_path: Path) -> None:
    save(FAMILIES[name], tmp_path, seed=1)
    assert isinstance(read_config(tmp_path), CompactConfig) == (name in COMPACT)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("name", BY_TIER)
def test_logits_in_half_precision_are_near_those_of_transformers(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """At every position of a prompt, within a share of the largest logit.

    Rounding may send a row to another expert where two are nearly as good, so mixtures have room.
    """
    tolerance = 0.1 if "num_experts_per_tok" in FAMILIES[name].changes else TOLERANCES[dtype]
    save(FAMILIES[name], tmp_path, seed=1, dtype=dtype)
    config = read_config(tmp_path)
    assert config.dtype == dtype
    ids_T = torch.randint(0, VOCABULARY, (24,), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected_TV = load(tmp_path, dtype)(ids_T[None]).logits[0].float()
        hidden_TD = torch.empty(0)
        for first, end in ((0, 2), (2, LAYERS)):
            decoder = load_decoder(
                tmp_path,
                config,
                first=first,
                end=end,
                device=torch.device("cpu"),
                progress=lambda _done, _total: None,
            )
            if first == 0:
                hidden_TD = decoder.embed(ids_T)
            rotation = decoder.rotation(torch.arange(24))
            for layer in range(first, end):
                hidden_TD = decoder.run_layer(
                    layer, hidden_TD, rotation=rotation, attend=attend_densely
                )
        logits_TV = decoder.logits(hidden_TD)
    differs = (logits_TV - expected_TV).abs().max() / expected_TV.abs().max()
    assert differs < tolerance
