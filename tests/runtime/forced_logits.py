"""Logits of every position of a prompt, through a chain of stages that hand on bytes."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from engine_under_test import ENGINE, backend_of, make_runner
from torch import Tensor

from runtime.engine.ranks import Runner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.protocol.data import Hop, Route, Sampling

GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The layers of one stage, what computes them, and in which type; or what runs them."""

    layers: range
    computed_in: str = ""
    engine: str = ENGINE
    runner: Runner | None = None


def logits_of(
    checkpoint: Path, prompt: list[int], cuts: Items[Cut], *, wire_dtype: torch.dtype | None = None
) -> Tensor:
    """[T, V]; with `wire_dtype` None all stages must compute in the same type."""
    payload = memoryview(np.array(prompt, dtype="<i4").tobytes())
    hops = tuple(
        Hop(node=f"n{at}", first=cut.layers.start, end=cut.layers.stop)
        for at, cut in enumerate(cuts)
    )
    route = Route(hops=hops, prompt_tokens=len(prompt), sampling=GREEDY)
    for at, cut in enumerate(cuts):
        runner = cut.runner or make_runner(
            checkpoint,
            cut.layers,
            pages=100,
            max_context_tokens=128,
            max_batch_tokens=64,
            engine=cut.engine,
            computed_in=cut.computed_in,
            wire_dtype=wire_dtype,
        )
        key = RequestKey(request=0, epoch=0)
        sequence = Sequence(key=key, generation=1, route=route, hop=at, arrival=0)
        chunk = Chunk(
            position=0, n_tokens=len(prompt), payload=payload, is_sampled=False, arrival=0
        )
        runner.cache.kv_manager.reserve(sequence.table, tokens=chunk.end)
        step = [Work(sequence=sequence, chunk=chunk)]
        if cut is cuts[-1]:
            return runner.logits(runner.forward(step))
        result = backend_of(runner, checkpoint).run(step)
        payload = memoryview(result.rows.gather([(0, len(prompt))]))
    raise AssertionError("a chain of no stages")


def distance(ours_TV: Tensor, theirs_TV: Tensor) -> float:
    """Relative to the spread of the logits."""
    return float((ours_TV - theirs_TV).norm() / theirs_TV.norm())
