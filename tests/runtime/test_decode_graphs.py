"""Recorded decodes against the same decodes run one by one.

A recording needs a GPU. Here the recorded work is done anew at each replay, from the buffers it was
recorded with, which is what a graph does; so what is copied into the buffers is checked.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from test_varlen_attention import plain_kernel

from runtime.engine import decode_graphs
from runtime.engine.decode_graphs import DecodeGraphs
from runtime.engine.kv_cache import KvCache
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.models.weights import load_decoder
from runtime.protocol.routes import Hop, Route, Sampling

SIZES = TinySizes(
    num_layers=3, hidden_size=32, intermediate_size=64, vocab_size=300, max_position_embeddings=64
)
SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=9)
CPU = torch.device("cpu")


class RunsAnew(DecodeGraphs):
    """Plays by running the recorded work again into the buffer it gave."""

    plays = 0

    def _capture(
        self, run: Callable[[], torch.Tensor], *, device: torch.device
    ) -> tuple[Callable[[], object], torch.Tensor]:
        assert device == CPU
        after_BD = run().clone()

        def replay() -> None:
            self.plays += 1
            after_BD.copy_(run())

        return replay, after_BD


def runner_of(checkpoint: Path, kind: type[DecodeGraphs] | None) -> ModelRunner:
    config = read_config(checkpoint)
    decoder = load_decoder(
        checkpoint, config, first=0, end=3, device=CPU, progress=lambda _done, _total: None
    )
    cache = KvCache(config, pages=300, page_tokens=4, device=CPU)
    graphs = None if kind is None else kind(plain_kernel, context_pages=16)
    return ModelRunner(
        decoder,
        cache,
        max_context_tokens=64,
        kernel=plain_kernel,
        graphs=graphs,
        whole=[range(3)],
    )


def run(runner: ModelRunner, layers: range = range(3)) -> list[torch.Tensor]:
    """Prompts of several lengths, then decodes of a batch that shrinks and grows."""
    dice = np.random.default_rng(3)
    hop = Hop(node="here", first=layers.start, end=layers.stop)
    route = Route(hops=(hop,), sampling=SAMPLING, prompt_tokens=1)
    requests = [
        Sequence(key=RequestKey(request=n, epoch=1), generation=1, route=route, hop=0, arrival=n)
        for n in range(6)
    ]
    positions = [0] * 6
    after = []
    for members, n_tokens in ((range(6), 5), (range(5), 1), ([1], 1), (range(6), 1), ([2, 4], 1)):
        step = []
        for member in members:
            count = n_tokens + (member if n_tokens > 1 else 0)
            payload = dice.integers(3, 300, count, dtype="<i4").tobytes()
            chunk = Chunk(
                position=positions[member],
                n_tokens=count,
                payload=memoryview(payload),
                is_sampled=True,
                arrival=0,
            )
            runner.cache.books.reserve(requests[member].table, tokens=chunk.end)
            step.append(Work(sequence=requests[member], chunk=chunk))
            positions[member] += count
        after.append(runner.forward(step).clone())
    return after


def test_recorded_decodes_give_what_single_ones_give(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=4)
    played = runner_of(tmp_path, RunsAnew)
    for found, expected in zip(run(played), run(runner_of(tmp_path, None)), strict=True):
        torch.testing.assert_close(found, expected)
    assert played._graphs.plays == 4


def test_a_step_larger_than_any_recording_is_not_played(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=4)
    graphs = runner_of(tmp_path, RunsAnew)._graphs
    assert graphs.fits(decode_graphs.MOST_ROWS)
    assert not graphs.fits(decode_graphs.MOST_ROWS + 1)


def test_decodes_of_another_generation_are_recorded_apart_and_other_ways_through_not_at_all(
    tmp_path: Path,
) -> None:
    make_tiny_checkpoint(tmp_path, sizes=SIZES, seed=4)
    played, single = runner_of(tmp_path, RunsAnew), runner_of(tmp_path, None)
    played.run_with(played.decoder, whole=[range(3), range(2)])
    for layers, plays in ((range(3), 4), (range(2), 8), (range(1), 8)):
        for found, expected in zip(run(played, layers), run(single, layers), strict=True):
            torch.testing.assert_close(found, expected)
        assert played._graphs.plays == plays
    played.forget_recordings()
    assert not played._graphs._recordings
