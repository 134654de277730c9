"""Times steps of the stage's own model runner on this machine.

One layer of the checkpoint stands for all: Llama layers are alike. Steps of one and of several
such layers are timed, and their difference is the cost of a layer, the rest that of a step.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from runtime.engine.sequence import Chunk, Work, passing
from runtime.engine.step_runner import StepRunner

SHALLOW, DEEP = 1, 5
MOST_DECODES = 256  # in one step; estimates from data sheets end there too (planner/roofline.py)
_LADDER = (1, 2, 4, 16, 64, MOST_DECODES)
_CLOSE_ENOUGH = 0.1  # relative error of interpolation below which no further size is timed
MOST_REFINEMENTS = 4
_LEAST_REPEATS, _MOST_REPEATS, _ENOUGH_S = 4, 20, 0.5
REST_S = 0.01  # about as long as a stage waits between steps for what comes over a link
_TOO_LONG_S = 4.0  # what takes that long is not run again


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


def decode_batches(most: int) -> tuple[int, ...]:
    """Numbers of decodes in a step to time first, the largest `most`: at least 4, at most 256."""
    most = min(max(most, 4), MOST_DECODES)
    return (*(batch for batch in _LADDER if 1.5 * batch <= most), most)


def most_decodes(kv_room_tokens: float, *, context_tokens: int) -> int:
    """How many requests of that context a KV cache for DEEP layers holds, if it has room for so
    many tokens in one layer."""
    return int(kv_room_tokens // (DEEP * (context_tokens + 1)))


def interpolation_errors(seconds: Mapping[int, float]) -> dict[int, float]:
    """By inner size, the relative error there of a straight line between its neighbours.

    An upper estimate of the error between measured sizes: the gaps there are narrower.
    """
    sizes = sorted(seconds)
    errors = {}
    for low, size, high in zip(sizes, sizes[1:], sizes[2:], strict=False):
        share = (size - low) / (high - low)
        straight = (1 - share) * seconds[low] + share * seconds[high]
        errors[size] = abs(straight / seconds[size] - 1)
    return errors


def next_size(seconds: Mapping[int, float]) -> int | None:
    """The size to time next: the geometric middle of the wider gap beside the size that its
    neighbours predict worst. None if all predictions are close, or no gap is wide."""
    errors = interpolation_errors(seconds)
    for worst in sorted(errors, key=lambda size: -errors[size]):
        if errors[worst] <= _CLOSE_ENOUGH:
            break
        beside = [gap for gap in pairwise(sorted(seconds)) if worst in gap and gap[1] >= 3 * gap[0]]
        if beside:
            low, high = max(beside, key=lambda gap: gap[1] / gap[0])
            return round(math.sqrt(low * high))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Cost of a decode step by number of requests, of a prefill chunk by number of tokens."""

    decode: dict[int, StepCost]
    prefill: dict[int, StepCost]


def step_cost(*, shallow_s: float, deep_s: float) -> StepCost:
    """From a step over SHALLOW layers and the same over DEEP."""
    per_layer_s = max(deep_s - shallow_s, deep_s * 0.01) / (DEEP - SHALLOW)
    return StepCost(fixed_s=max(0.0, shallow_s - per_layer_s), per_layer_s=per_layer_s)


def run_step(
    runner: StepRunner,
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
    payload = np.arange(n_tokens, dtype="<i4").data.cast("B")
    kv_manager, step = runner.cache.kv_manager, []
    for _ in range(requests):
        sequence = passing(0, layers)
        chunk = Chunk(
            position=position, n_tokens=n_tokens, payload=payload, is_sampled=True, arrival=0
        )
        kv_manager.reserve(sequence.table, tokens=chunk.end)
        step.append(Work(sequence=sequence, chunk=chunk))
    seconds: list[float] = []
    while _is_unsure(seconds):
        rest(seconds[-1] if seconds else 0.0)
        began_s = clock()
        runner.forward(step)
        if runner.device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(clock() - began_s)
    for work in step:
        kv_manager.release(work.sequence.table)
    return StepRuns(least_s=min(seconds), median_s=statistics.median(seconds), runs=len(seconds))


def _is_unsure(seconds: list[float]) -> bool:
    """Whether a step with these runs is to be run again."""
    spent_s = sum(seconds)
    if spent_s >= _TOO_LONG_S:
        return False
    few = len(seconds) < _LEAST_REPEATS
    return few or (len(seconds) < _MOST_REPEATS and spent_s < _ENOUGH_S)
