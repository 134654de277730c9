"""In bf16, near-ties between tokens are common: a sum in another order gives another answer.

A request gets the same tokens alone, in company, from cached pages, however the layers are split,
and when a stage is lost half-way.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from family_checkpoints import FAMILIES, VOCABULARY, save
from stage_cluster import StageCluster

from runtime.models.compiled.library import compiled_kernels
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.data import Sampling

pytestmark = pytest.mark.skipif(
    compiled_kernels() is None, reason="the kernels were not built here, or the CPU has no AVX2"
)

LAYERS = 6
SOLO = {"solo": (0, LAYERS)}
SPLITS = [
    [("solo", 0, LAYERS)],
    [("a", 0, 2), ("b", 2, LAYERS)],
    [("c", 0, 3), ("d", 3, 5), ("e", 5, LAYERS)],
]
NODES = {name: (first, end) for split in SPLITS for name, first, end in split}
ALONE, TOGETHER = 0, 1000  # numbers of requests
STREAMS = 8
OUTPUT_TOKENS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    prompt: list[int]
    sampling: Sampling


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoint")
    sizes = TinySizes(
        num_layers=LAYERS,
        hidden_size=72,
        intermediate_size=168,
        num_heads=6,
        num_kv_heads=2,
        head_size=24,
        vocab_size=333,
        max_position_embeddings=128,
        dtype="bfloat16",
    )
    make_tiny_checkpoint(directory, sizes=sizes, seed=3)
    return directory


def drawn_cases(count: int) -> list[Case]:
    """Every other request is greedy, every other sampled with a seed of its own."""
    dice = np.random.default_rng(4)
    return [
        Case(
            prompt=dice.integers(5, 333, int(dice.integers(1, 70))).tolist(),
            sampling=Sampling(
                temperature=0.8 * (index % 2),
                top_p=0.95,
                top_k=0,
                seed=index,
                max_tokens=OUTPUT_TOKENS,
            ),
        )
        for index in range(count)
    ]


def alone(checkpoint: Path, case: Case) -> list[int]:
    """What one stage answers whose steps take whole prompts."""
    cluster = StageCluster(checkpoint, SOLO, max_batch_tokens=128)
    cluster.prompt(ALONE, case.prompt, SPLITS[0], sampling=case.sampling)
    cluster.run_all()
    return cluster.answers[ALONE, 1].token_ids


def in_company(checkpoint: Path, cases: list[Case], split: int) -> list[list[int]]:
    """Answers of STREAMS requests at a time, which begin one turn after another."""
    answers = []
    for first in range(0, len(cases), STREAMS):
        cluster = StageCluster(checkpoint, NODES, pages=4000, max_batch_tokens=19)
        group = cases[first : first + STREAMS]
        for index, case in enumerate(group):
            cluster.prompt(TOGETHER + index, case.prompt, SPLITS[split], sampling=case.sampling)
            cluster.turn()
        cluster.run_all()
        answers += [cluster.answers[TOGETHER + index, 1].token_ids for index in range(len(group))]
    return answers


def from_cached_pages(checkpoint: Path, case: Case) -> list[int]:
    cluster = StageCluster(checkpoint, SOLO, max_batch_tokens=128)
    for epoch in (0, 1):
        number = TOGETHER + epoch
        cluster.prompt(number, case.prompt, SPLITS[0], sampling=case.sampling, epoch=0)
        cluster.run_all()
    reused = cluster.stages["solo"].stats().prefix_tokens_total
    assert reused > 0 or len(case.prompt) < 5  # a page and the token that is always run
    return cluster.answers[TOGETHER + 1, 0].token_ids


def continued_elsewhere(checkpoint: Path, case: Case, *, lost_after: int) -> list[int]:
    """The stage is lost after so many tokens; another one gets them with the prompt."""
    cluster = StageCluster(checkpoint, NODES, max_batch_tokens=19)
    cluster.prompt(1, case.prompt, SPLITS[1], sampling=case.sampling)
    cluster.run_until(lambda: len(cluster.answers[1, 1].token_ids) >= lost_after)
    del cluster.stages["a"]
    told = cluster.answers[1, 1].token_ids[:lost_after]
    rest = replace(case.sampling, max_tokens=OUTPUT_TOKENS - lost_after)
    cluster.prompt(1, case.prompt + told, SPLITS[2], sampling=rest, epoch=2)
    cluster.run_until(lambda: len(cluster.answers[1, 2].token_ids) == rest.max_tokens)
    return told + cluster.answers[1, 2].token_ids


@pytest.mark.slow
@pytest.mark.parametrize("count", [STREAMS, pytest.param(200, marks=pytest.mark.chaos)])
def test_a_request_gets_the_same_tokens_however_it_is_run(checkpoint: Path, count: int) -> None:
    cases = drawn_cases(count)
    expected = [alone(checkpoint, case) for case in cases]
    assert all(len(tokens) == OUTPUT_TOKENS for tokens in expected)
    for split in range(len(SPLITS)):
        assert in_company(checkpoint, cases, split) == expected
    assert [from_cached_pages(checkpoint, case) for case in cases] == expected
    assert [
        continued_elsewhere(checkpoint, case, lost_after=1 + index % (OUTPUT_TOKENS - 1))
        for index, case in enumerate(cases)
    ] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "gemma2",
        *(
            pytest.param(name, marks=pytest.mark.families)
            for name in ("qwen3 tied", "mistral sliding", "phi3")
        ),
    ],
)  # fmt: skip
def test_other_families_answer_alike_in_company_and_split(name: str, tmp_path: Path) -> None:
    save(FAMILIES[name], tmp_path, seed=1, dtype=torch.bfloat16)
    cases = [
        replace(case, prompt=[token % VOCABULARY for token in case.prompt])
        for case in drawn_cases(STREAMS)
    ]
    expected = [alone(tmp_path, case) for case in cases]
    assert in_company(tmp_path, cases, 2) == expected
