"""Step times and a memory budget -> the compute profile of a node (Helix §4.3, the T_j).

Method. A node that holds j layers has room for C_j tokens x layers of KV cache. A typical request
brings P prompt and O output tokens, so at a target occupancy of 0.3 the node decodes
B_j = 0.3 C_j / (j (P + O)) requests at once. One request costs it its prefill, in chunks of the
engine's budget, and O decode steps shared by B_j requests:

    T_j = (P + O) / (prefill_j(P) + O decode_j(B_j) / B_j)

Times between measured sizes are interpolated. T_j leaves out sending, sampling and the output head.
A node of relative speed s takes 1/s as long for each step. What a step takes however many layers it
runs, and what is beside steps, is told beside a layer's times, which forecasts stand on.
"""

import itertools
import math
import statistics

import numpy as np

from planner.domain.layer_times import LayerTimes, Points
from planner.domain.node_memory import KvMinimum
from planner.domain.problem import Workload
from planner.domain.profile import ComputeProfile
from planner.memory import ModelMemory, least_ends, node_room
from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import fit_step, model_memory, smallest_step
from runtime.profiler.rehearsal import Beside
from runtime.profiler.step_times import StepCost, StepTimes

TARGET_OCCUPANCY = 0.3
_LEAST_OF_LAYERS = 0.01  # of a step: so much is its layers' at least, by any measurement


def compute_profile(
    name: str,
    *,
    config: DecoderSizes,
    limits: EngineLimits,
    times: StepTimes,
    beside: Beside,
    workload: Workload,
    device_name: str,
    memory_budget_bytes: int,
    relative_speed: float,
    kv_minimum: KvMinimum,
) -> ComputeProfile:
    """The profile of a node with that memory and speed; `max_layers` may be 0.

    `kv_minimum` must fit beside the layers.
    """

    def memory_of(layers: int, has_first: bool, has_last: bool) -> ModelMemory:
        def of_steps(limits: EngineLimits) -> ModelMemory:
            return model_memory(config, limits, kv_minimum=kv_minimum)

        fitting = fit_step(
            config,
            limits,
            memory_budget_bytes=memory_budget_bytes,
            needed_bytes=lambda limits: (
                of_steps(limits).stage(layers, has_first=has_first, has_last=has_last).needed
            ),
        )
        return of_steps(fitting)

    room = node_room(memory_of, budget_bytes=memory_budget_bytes, num_layers=config.num_layers)
    step = fit_step(config, limits, memory_budget_bytes=memory_budget_bytes).max_batch_tokens
    tokens_per_s: list[float] = []
    for layers, kv_capacity in enumerate(room.kv_token_layers, start=1):
        tokens_per_s.append(
            relative_speed
            * throughput_tokens_per_s(
                times,
                layers=layers,
                kv_capacity_token_layers=kv_capacity,
                workload=workload,
                max_batch_tokens=step,
            )
        )
    return ComputeProfile(
        name=name,
        gpu=device_name,
        vram_bytes=float(memory_budget_bytes),
        max_layers=room.max_layers,
        tokens_per_s=tuple(tokens_per_s),
        kv_capacity_token_layers=room.kv_token_layers,
        layer_times=(
            layer_times(times, beside, layers=room.max_layers, relative_speed=relative_speed)
            if room.max_layers
            else None
        ),
        memory=room.memory,
    )


def layer_times(
    times: StepTimes, beside: Beside, *, layers: int, relative_speed: float
) -> LayerTimes:
    """Seconds of a layer by the tokens of a prompt step, by the decodes of a step, and of a step.

    What a step takes beside its layers is the median over sizes. Together they are what was
    measured of `layers` layers; a larger step that was quicker counts as long as the smaller one.
    """

    def points(costs: dict[int, StepCost], step_s: float) -> Points:
        seconds = [
            max(
                costs[size].seconds(layers) - step_s, _LEAST_OF_LAYERS * costs[size].seconds(layers)
            )
            / layers
            / relative_speed
            for size in sorted(costs)
        ]
        rising = itertools.accumulate(seconds, max)
        return tuple(zip(map(float, sorted(costs)), rising, strict=True))

    prompt_s, decode_s = (
        statistics.median(cost.fixed_s for cost in costs.values())
        for costs in (times.prefill, times.decode)
    )
    return LayerTimes(
        prompt=points(times.prefill, prompt_s),
        decode=points(times.decode, decode_s),
        prompt_step_s=prompt_s / relative_speed,
        decode_step_s=decode_s / relative_speed,
        head_s=beside.head_s / relative_speed,
        handling_s=beside.handling_s,
        hop_s=beside.hop_s,
    )


def least_bytes(config: DecoderSizes, limits: EngineLimits, *, kv_minimum: KvMinimum) -> int:
    """The least budget that holds a layer: in the middle of the model, by the smallest steps."""
    memory = model_memory(config, smallest_step(limits), kv_minimum=kv_minimum)
    has_first, has_last = least_ends(config.num_layers)
    return math.ceil(memory.stage(1, has_first=has_first, has_last=has_last).needed)


def throughput_tokens_per_s(
    times: StepTimes,
    *,
    layers: int,
    kv_capacity_token_layers: float,
    workload: Workload,
    max_batch_tokens: int,
) -> float:
    """T_j, in prompt and output tokens together.

    A step holds as many decodes as KV cache allows, or as few as decode fastest: the stage's cap
    on decodes finds the latter.
    """
    prompt, output = workload.mean_prompt_tokens, workload.mean_output_tokens
    room = TARGET_OCCUPANCY * kv_capacity_token_layers / (layers * (prompt + output))
    most = min(max(1.0, room), float(max(times.decode)))
    batches = [most, *(float(batch) for batch in times.decode if batch < most)]
    chunks, rest = divmod(prompt, max_batch_tokens)
    prefill_s = chunks * _seconds(times.prefill, max_batch_tokens, layers)
    if rest > 0:
        prefill_s += _seconds(times.prefill, rest, layers)
    decode_s = output * min(_seconds(times.decode, size, layers) / size for size in batches)
    return (prompt + output) / (prefill_s + decode_s)


def _seconds(costs: dict[int, StepCost], size: float, layers: int) -> float:
    """Linear between measured sizes, constant below the least, in proportion above the largest."""
    sizes = sorted(costs)
    seconds = np.interp(size, sizes, [costs[each].seconds(layers) for each in sizes])
    return float(seconds) * max(1.0, size / sizes[-1])
