"""Stages of vLLM whose layers several processes share, against `transformers` and against one.

Runs in vLLM's environment only (`make test-vllm`).
"""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine_under_test import IS_VLLM, PAGE_TOKENS, no_progress
from family_checkpoints import LAYERS, VOCABULARY, generate, load, save
from forced_logits import Cut, distance, logits_of
from quantized_checkpoints import quantize
from stage_cluster import GREEDY, StageCluster
from test_vllm_quantized import LAYERS as ALL
from test_vllm_quantized import PROMPT, SIZES
from vllm_families import VLLM_FAMILIES

from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.model_facts import read_sizes
from runtime.engine.backend import CannotRun
from runtime.engine.limits import EngineLimits
from runtime.engine.ranks import RankGroup, RankLost
from runtime.engine.stage_engine import RankTask
from runtime.models.model_config import DTYPES
from runtime.models.tiny_checkpoint import make_tiny_checkpoint
from runtime.protocol.engines import AUTOMATIC

pytestmark = [
    pytest.mark.skipif(not IS_VLLM, reason="runs in vLLM's environment: make test-vllm"),
    pytest.mark.processes,
]

PAGES, CONTEXT = 400, 64
LLAMA = VLLM_FAMILIES["Llama"]
SHARED = {
    "llama": LLAMA,
    "one KV head, held by both": replace(
        LLAMA, changes=LLAMA.changes | {"num_key_value_heads": 1, "vocab_size": 299}
    ),
    "qwen3 moe": VLLM_FAMILIES["Qwen3-MoE"],
    "deepseek v2 yarn": VLLM_FAMILIES["DeepSeek-V2, yarn"],
}
# the second stage is the one of two ranks: requests enter and leave it at any layer
PATHS = (
    (("b", 0, LAYERS),),
    (("a", 0, 2), ("b", 2, LAYERS)),
    (("b", 0, 4), ("c", 4, LAYERS)),
    (("a", 0, 1), ("b", 1, 5), ("c", 5, LAYERS)),
)
WHOLE_ONLY = {"deepseek v2 yarn": PATHS[:1]}  # our bridge runs no part of its layers
Open = Callable[..., RankGroup]


@pytest.fixture
def open_group() -> Iterator[Open]:
    """Opens a stage of two ranks, this process and another; one at a time."""
    from runtime.engine import vllm_compat
    from runtime.engine.vllm_engine import VllmEngine

    groups: list[RankGroup] = []

    def open_one(
        checkpoint: Path,
        layers: range,
        *,
        max_context_tokens: int = CONTEXT,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> RankGroup:
        vllm_compat.leave_ranks()  # where this process ran layers alone
        sizes = read_sizes(checkpoint)
        task = RankTask(
            engine_type=VllmEngine,
            folder=checkpoint,
            settings=AUTOMATIC,
            layers=layers,
            limits=EngineLimits(
                page_tokens=PAGE_TOKENS,
                max_batch_tokens=64,
                max_context_tokens=max_context_tokens,
            ),
            wire_dtype=DTYPES[sizes.dtype_name],
            threads=1,
        )
        groups.append(RankGroup.open(task, ranks=2, progress=no_progress, on_lost=on_lost))
        return groups[-1]

    yield open_one
    for group in groups:
        group.close()


@pytest.mark.parametrize("name", SHARED)
def test_a_stage_of_two_ranks_answers_as_the_whole_model(
    name: str, tmp_path: Path, open_group: Open
) -> None:
    save(SHARED[name], tmp_path, seed=1)
    oracle, sizes = load(tmp_path), read_sizes(tmp_path)
    group = open_group(tmp_path, range(LAYERS))
    runner = group.make_runner(pages=PAGES)
    kv_heads = 1 if sizes.latent_size else sizes.num_kv_heads
    whole_bytes = PAGES * PAGE_TOKENS * sizes.kv_token_bytes
    assert runner.cache.nbytes == whole_bytes // min(2, kv_heads)
    paths = WHOLE_ONLY.get(name, PATHS)
    layers = {"b": (0, LAYERS)}
    if paths is PATHS:
        layers |= {"a": (0, 3), "c": (3, LAYERS)}
    cluster = StageCluster(
        tmp_path,
        layers,
        max_context_tokens=CONTEXT,
        engines={"a": "helix", "c": "helix"},
        runners={"b": runner},
    )
    dice = random.Random(1)
    prompts = {
        request: [dice.randrange(3, VOCABULARY - 1) for _ in range(dice.choice((1, 5, 23, 37)))]
        for request in range(8)
    }
    for request, prompt in prompts.items():
        path = paths[request % len(paths)]
        cluster.prompt(request, prompt, path, sampling=replace(GREEDY, max_tokens=8))
    cluster.run_all()
    for request, prompt in prompts.items():
        expected = generate(oracle, prompt, max_tokens=8)
        assert cluster.answers[request, 1].token_ids == expected, request
    cluster.release_all()


@pytest.mark.parametrize(("kind", "share"), [("w8a8", 1.5), ("w4a16", 0.5)])
def test_two_ranks_compute_with_quantised_weights_what_one_does(
    kind: str, share: float, tmp_path: Path, open_group: Open
) -> None:
    """But for rounding: with w8a8 each rank scales its part of the activations."""
    make_tiny_checkpoint(tmp_path / "plain", sizes=SIZES, seed=5)
    quantize(tmp_path / "plain", tmp_path / kind, kind)
    alone_TV = logits_of(tmp_path / kind, PROMPT, [Cut(layers=range(ALL))])
    plain_TV = logits_of(tmp_path / "plain", PROMPT, [Cut(layers=range(ALL))])
    group = open_group(tmp_path / kind, range(ALL), max_context_tokens=128)
    shared = Cut(layers=range(ALL), runner=group.make_runner(pages=PAGES))
    rounding = distance(plain_TV, alone_TV)  # what quantising this model changes
    assert distance(logits_of(tmp_path / kind, PROMPT, [shared]), alone_TV) < share * rounding


def test_a_rank_that_dies_is_told_of_and_no_step_is_run_without_it(
    tmp_path: Path, open_group: Open
) -> None:
    save(LLAMA, tmp_path, seed=1)
    lost: list[str] = []
    heard = threading.Event()

    def on_lost(message: str) -> None:
        lost.append(message)
        heard.set()

    group = open_group(tmp_path, range(LAYERS), on_lost=on_lost)
    runner = group.make_runner(pages=PAGES)
    group._children._processes[0].kill()
    assert heard.wait(timeout=90)
    assert "rank 1 ended with status -9" in lost[0]
    with pytest.raises(RankLost, match="rank 1 takes no more steps"):
        logits_of(tmp_path, PROMPT, [Cut(layers=range(LAYERS), runner=runner)])


def test_a_model_that_two_ranks_cannot_share_is_refused(tmp_path: Path, open_group: Open) -> None:
    odd = replace(LLAMA, changes=LLAMA.changes | {"intermediate_size": 255})
    save(odd, tmp_path / "width", seed=1)
    with pytest.raises(CannotRun, match="tp_size"):
        open_group(tmp_path / "width", range(LAYERS))
    heads = {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 3}
    save(replace(LLAMA, changes=LLAMA.changes | heads), tmp_path / "heads", seed=1)
    with pytest.raises(CheckpointError, match="3 query heads and 3 KV heads cannot be dealt to 2"):
        open_group(tmp_path / "heads", range(LAYERS))
    assert torch.distributed.is_initialized() is False
