"""Steps of a stage that several processes run together, against one that runs alone."""

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path

import family_checkpoints
import numpy as np
import pytest
import torch
from family_checkpoints import COMPACT, LAYERS, VOCABULARY

from runtime.engine.backend import CannotRun
from runtime.engine.helix_engine import HelixEngine, HelixRank
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.model_runner import ModelRunner
from runtime.engine.ranks import RankGroup, RankLost, Runner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.engine.stage_engine import RankTask
from runtime.models.checkpoint import CheckpointError
from runtime.models.config import read_config
from runtime.models.free_memory import free_bytes
from runtime.models.weights import load_decoder
from runtime.protocol.data import Hop, Route, Sampling
from runtime.protocol.engines import ComputeDtype, EngineSettings

SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)
PAGES, PAGE_TOKENS, CONTEXT = 200, 4, 64


def task_of(
    checkpoint: Path,
    *,
    first: int = 0,
    end: int = LAYERS,
    engine_type: type[HelixEngine] = HelixEngine,
) -> RankTask:
    return RankTask(
        engine_type=engine_type,
        folder=checkpoint,
        settings=EngineSettings(compute_dtype=ComputeDtype.FLOAT32),
        layers=range(first, end),
        limits=EngineLimits(
            page_tokens=PAGE_TOKENS, max_batch_tokens=CONTEXT, max_context_tokens=CONTEXT
        ),
        wire_dtype=torch.float32,
        threads=1,
    )


def open_group(
    task: RankTask, ranks: int, on_lost: Callable[[str], None] = lambda _message: None
) -> RankGroup:
    return RankGroup.open(task, ranks=ranks, progress=lambda _done, _total: None, on_lost=on_lost)


def run_steps(runner: Runner) -> list[torch.Tensor]:
    """Two requests, one of them over the later layers only: chunks of prompts, then decodes."""
    dice = np.random.default_rng(5)
    requests = []
    for number, first in enumerate((0, 0, 3)):
        hop = Hop(node="here", first=first, end=LAYERS)
        route = Route(hops=(hop,), sampling=SAMPLING, prompt_tokens=9)
        key = RequestKey(request=number, epoch=1)
        requests.append(Sequence(key=key, generation=1, route=route, hop=0, arrival=number))
    logits = []
    position = 0
    for n_tokens in (5, 4, 1, 1, 1):
        step = []
        for sequence in requests:
            if sequence.first == 0:
                payload = dice.integers(3, VOCABULARY, n_tokens, dtype="<i4").tobytes()
            else:
                payload = dice.standard_normal((n_tokens, 32), dtype=np.float32).tobytes()
            chunk = Chunk(
                position=position,
                n_tokens=n_tokens,
                payload=memoryview(payload),
                is_sampled=True,
                arrival=0,
            )
            runner.cache.kv_manager.reserve(sequence.table, tokens=chunk.end)
            step.append(Work(sequence=sequence, chunk=chunk))
        hidden_TD = runner.forward(step)
        logits.append(runner.logits(hidden_TD[n_tokens - 1 :: n_tokens]))
        position += n_tokens
    return logits


@pytest.mark.processes
@pytest.mark.parametrize(
    ("ranks", "name"),
    [(2, "qwen3 tied"), pytest.param(4, "mistral sliding", marks=pytest.mark.long)],
)
def test_a_stage_of_several_processes_gives_the_logits_of_one(
    ranks: int, name: str, tmp_path: Path
) -> None:
    family_checkpoints.save(COMPACT[name], tmp_path, seed=3)
    config = read_config(tmp_path)
    cpu = torch.device("cpu")
    whole = load_decoder(
        tmp_path, config, first=0, end=LAYERS, device=cpu, progress=lambda _done, _total: None
    )
    cache = KvCache(config, pages=PAGES, page_tokens=PAGE_TOKENS, device=cpu)
    expected = run_steps(ModelRunner(whole, cache, max_context_tokens=CONTEXT))
    group = open_group(task_of(tmp_path), ranks)
    try:
        assert 0 < group.free_bytes < free_bytes(cpu) / ranks * 1.5
        runner = group.make_runner(pages=PAGES)
        # two KV heads: halves, also on four ranks
        assert runner.cache.nbytes == cache.nbytes // 2
        assert runner.kv_bytes == cache.nbytes * ranks // 2
        found = run_steps(runner)
    finally:
        group.close()
    for found_RV, expected_RV in zip(found, expected, strict=True):
        torch.testing.assert_close(found_RV, expected_RV, rtol=1e-4, atol=1e-4)
        assert torch.equal(found_RV.argmax(-1), expected_RV.argmax(-1))


@pytest.mark.processes
def test_a_rank_that_ends_is_told_of_and_no_step_is_run_without_it(tmp_path: Path) -> None:
    family_checkpoints.save(COMPACT["llama 2"], tmp_path, seed=3)
    lost: list[str] = []
    heard = threading.Event()

    def on_lost(message: str) -> None:
        lost.append(message)
        heard.set()

    group = open_group(task_of(tmp_path), 2, on_lost)
    try:
        runner = group.make_runner(pages=PAGES)
        group._children._processes[0].kill()
        assert heard.wait(timeout=90)
        assert "rank 1 ended with status -9" in lost[0]
        with pytest.raises(RankLost, match="rank 1 takes no more steps"):
            run_steps(runner)
    finally:
        group.close()


class OneRefuses(HelixEngine):
    """Layers of which rank 1 cannot take its share."""

    def rank(self, ranks: int, layers: range, limits: EngineLimits) -> HelixRank:
        if multiprocessing.parent_process() is not None:
            raise CannotRun("its GPU is gone")
        return super().rank(ranks, layers, limits)


@pytest.mark.processes
def test_a_rank_that_refuses_ends_the_stage_before_the_others_wait_for_it(tmp_path: Path) -> None:
    family_checkpoints.save(COMPACT["llama 2"], tmp_path, seed=3)
    with pytest.raises(RankLost, match="rank 1: its GPU is gone"):
        open_group(task_of(tmp_path, engine_type=OneRefuses), 2)


@pytest.mark.processes
def test_what_keeps_a_rank_from_loading_is_told(tmp_path: Path) -> None:
    family_checkpoints.save(COMPACT["llama 2"], tmp_path, seed=3)
    with pytest.raises(Exception, match=r"layers \[4, 9\) are not in"):
        open_group(task_of(tmp_path, first=4, end=9), 2)
    with pytest.raises(CheckpointError, match="cannot be dealt to 3"):
        open_group(task_of(tmp_path), 3)
