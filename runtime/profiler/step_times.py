"""Times steps of the stage's own model runner on this machine.

One layer of the checkpoint stands for all: Llama layers are alike. Steps of one and of several
such layers are timed, and their difference is the cost of a layer, the rest that of a step.
"""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.loading import make_runner
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.models.decoder import LoadedDecoder
from runtime.protocol.routes import Hop, Route, Sampling

SHALLOW, DEEP = 1, 5
_LEAST_REPEATS, _MOST_REPEATS, _ENOUGH_S = 4, 20, 0.5
REST_S = 0.01  # about as long as a stage waits between steps for what comes over a link
_TOO_LONG_S = 4.0  # what takes that long is not run again
_SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Seconds of a step over j layers: `fixed_s` + j * `per_layer_s`."""

    fixed_s: float
    per_layer_s: float

    def seconds(self, layers: int) -> float:
        return self.fixed_s + layers * self.per_layer_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRuns:
    """How long the quickest and the middle one of some runs of a step took."""

    least_s: float
    median_s: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Cost of a decode step by number of requests, of a prefill chunk by number of tokens."""

    decode: dict[int, StepCost]
    prefill: dict[int, StepCost]


def measure_step_times(
    decoder: LoadedDecoder,
    *,
    decode_batches: tuple[int, ...],
    prefill_tokens: tuple[int, ...],
    context_tokens: int,
    page_tokens: int,
    clock: Callable[[], float],
    rest: Callable[[float], None],
) -> StepTimes:
    """Run each step several times, each after a `rest` as `run_step` has it, and keep the median.
    `decoder` holds layer 0 of the checkpoint.

    Decodes attend over `context_tokens`; prefills begin their prompt. `clock` in seconds.
    """
    deep = decoder.repeating(DEEP)
    longest = max(context_tokens + 1, *prefill_tokens)
    blocks = -(-longest // page_tokens)
    cache = KvCache(
        decoder.config,
        pages=max(decode_batches) * blocks * DEEP,
        page_tokens=page_tokens,
        device=decoder.device,
    )
    limits = EngineLimits(
        page_tokens=page_tokens, max_batch_tokens=max(prefill_tokens), max_context_tokens=longest
    )
    runner = runner_as_staged(deep, cache, limits, depths=(SHALLOW, DEEP))

    def cost(requests: int, position: int, n_tokens: int) -> StepCost:
        shallow_s, deep_s = (
            run_step(
                runner,
                cache,
                layers=layers,
                requests=requests,
                position=position,
                n_tokens=n_tokens,
                clock=clock,
                rest=rest,
            ).median_s
            for layers in (SHALLOW, DEEP)
        )
        return step_cost(shallow_s=shallow_s, deep_s=deep_s)

    return StepTimes(
        decode={batch: cost(batch, context_tokens, 1) for batch in decode_batches},
        prefill={tokens: cost(1, 0, tokens) for tokens in prefill_tokens},
    )


def runner_as_staged(
    decoder: LoadedDecoder, cache: KvCache, limits: EngineLimits, *, depths: Iterable[int]
) -> ModelRunner:
    """The runner that a stage would have on this device, for the first so many layers: on a GPU
    with its kernel, and decodes recorded."""
    runner = make_runner(decoder, cache, limits)
    runner.run_with(decoder, whole=[range(depth) for depth in depths])
    return runner


def step_cost(*, shallow_s: float, deep_s: float) -> StepCost:
    """From a step over SHALLOW layers and the same over DEEP."""
    per_layer_s = max(deep_s - shallow_s, deep_s * 0.01) / (DEEP - SHALLOW)
    return StepCost(fixed_s=max(0.0, shallow_s - per_layer_s), per_layer_s=per_layer_s)


def run_step(
    runner: ModelRunner,
    cache: KvCache,
    *,
    layers: int,
    requests: int,
    position: int,
    n_tokens: int,
    clock: Callable[[], float],
    rest: Callable[[float], None],
) -> StepRuns:
    """Run one step several times, after a `rest` each: the next `n_tokens` tokens of `requests`
    requests that have `position` tokens already, through the first `layers` layers.

    `rest` gets the seconds that the run before took, at first 0.
    """
    route = Route(
        hops=(Hop(node="measured", first=0, end=layers),), sampling=_SAMPLING, prompt_tokens=1
    )
    payload = np.arange(n_tokens, dtype="<i4").data.cast("B")
    step = []
    for request in range(requests):
        sequence = Sequence(
            key=RequestKey(request=request, epoch=0),
            generation=1,
            route=route,
            hop=0,
            arrival=request,
        )
        chunk = Chunk(
            position=position,
            n_tokens=n_tokens,
            payload=payload,
            is_sampled=True,
            arrival=request,
        )
        cache.books.reserve(sequence.table, tokens=chunk.end)
        step.append(Work(sequence=sequence, chunk=chunk))
    seconds: list[float] = []
    while _is_unsure(seconds):
        rest(seconds[-1] if seconds else 0.0)
        began_s = clock()
        runner.forward(step)
        if cache.key_PSKH.is_cuda:
            torch.cuda.synchronize()
        seconds.append(clock() - began_s)
    for work in step:
        cache.books.release(work.sequence.table)
    return StepRuns(least_s=min(seconds), median_s=statistics.median(seconds), runs=len(seconds))


def _is_unsure(seconds: list[float]) -> bool:
    """Whether a step with these runs is to be run again."""
    spent_s = sum(seconds)
    if spent_s >= _TOO_LONG_S:
        return False
    few = len(seconds) < _LEAST_REPEATS
    return few or (len(seconds) < _MOST_REPEATS and spent_s < _ENOUGH_S)
