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
import statistics
from bisect import bisect_left

from planner.domain.layer_times import LayerTimes, Points
from planner.domain.problem import Workload
from planner.domain.profile import ComputeProfile
from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import activation_bytes, fit_step
from runtime.models.model_config import ModelConfig
from runtime.profiler.rehearsal import Beside
from runtime.profiler.step_times import StepCost, StepTimes

TARGET_OCCUPANCY = 0.3
_LEAST_OF_LAYERS = 0.01  # of a step: so much is its layers' at least, whatever was measured
_BUDGET_PER_WEIGHTS = 2  # as in Helix: at most half of the memory for weights


def compute_profile(
    name: str,
    *,
    config: ModelConfig,
    limits: EngineLimits,
    times: StepTimes,
    beside: Beside,
    workload: Workload,
    device_name: str,
    memory_budget_bytes: int,
    relative_speed: float,
) -> ComputeProfile:
    """The profile of a node with that memory and speed; `max_layers` may be 0."""
    limits = fit_step(config, limits, memory_budget_bytes=memory_budget_bytes)
    max_layers = 0
    for layers in range(1, config.num_layers + 1):
        if needed_bytes(config, limits, layers=layers) <= memory_budget_bytes:
            max_layers = layers
    one_page = page_bytes(config, page_tokens=limits.page_tokens)
    activations = activation_bytes(config, limits, has_head=True)
    kv_capacity: list[float] = []
    tokens_per_s: list[float] = []
    for layers in range(1, max_layers + 1):
        room = memory_budget_bytes - most_weights_bytes(config, layers) - activations
        kv_capacity.append(float(room // one_page * limits.page_tokens))
        tokens_per_s.append(
            relative_speed
            * throughput_tokens_per_s(
                times,
                layers=layers,
                kv_capacity_token_layers=kv_capacity[-1],
                workload=workload,
                max_batch_tokens=limits.max_batch_tokens,
            )
        )
    return ComputeProfile(
        name=name,
        gpu=device_name,
        vram_bytes=float(memory_budget_bytes),
        max_layers=max_layers,
        tokens_per_s=tuple(tokens_per_s),
        kv_capacity_token_layers=tuple(kv_capacity),
        layer_times=(
            layer_times(times, beside, layers=max_layers, relative_speed=relative_speed)
            if max_layers
            else None
        ),
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


def needed_bytes(config: ModelConfig, limits: EngineLimits, *, layers: int) -> int:
    """Least budget for `layers` layers: twice their weights, and room for one whole context
    beside the activations of steps of `limits`.

    Counted for the least favourable place of the layers in the model, so that a stage never
    finds less room than the planner was told.
    """
    weights = most_weights_bytes(config, layers)
    one_page = page_bytes(config, page_tokens=limits.page_tokens)
    context = limits.context_pages * layers * one_page
    engine = weights + activation_bytes(config, limits, has_head=True) + context
    return max(_BUDGET_PER_WEIGHTS * weights, engine)


def most_weights_bytes(config: ModelConfig, layers: int) -> int:
    """Weights of `layers` layers wherever they are: the first or the last ones weigh most."""
    return max(
        config.weights_bytes(0, layers),
        config.weights_bytes(config.num_layers - layers, config.num_layers),
    )


def throughput_tokens_per_s(
    times: StepTimes,
    *,
    layers: int,
    kv_capacity_token_layers: float,
    workload: Workload,
    max_batch_tokens: int,
) -> float:
    """T_j, in prompt and output tokens together."""
    prompt, output = workload.mean_prompt_tokens, workload.mean_output_tokens
    room = TARGET_OCCUPANCY * kv_capacity_token_layers / (layers * (prompt + output))
    batch = min(max(1.0, room), float(max(times.decode)))
    chunks, rest = divmod(prompt, max_batch_tokens)
    prefill_s = chunks * _seconds(times.prefill, max_batch_tokens, layers)
    if rest > 0:
        prefill_s += _seconds(times.prefill, rest, layers)
    decode_s = output * _seconds(times.decode, batch, layers) / batch
    return (prompt + output) / (prefill_s + decode_s)


def _seconds(costs: dict[int, StepCost], size: float, layers: int) -> float:
    """Linear between measured sizes, constant below the least, in proportion above the largest."""
    sizes = sorted(costs)
    if size >= sizes[-1]:
        return costs[sizes[-1]].seconds(layers) * size / sizes[-1]
    if size <= sizes[0]:
        return costs[sizes[0]].seconds(layers)
    upper = bisect_left(sizes, size)
    low, high = sizes[upper - 1], sizes[upper]
    share = (size - low) / (high - low)
    return (1 - share) * costs[low].seconds(layers) + share * costs[high].seconds(layers)
