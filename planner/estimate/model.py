"""Parameters of an estimate from policy and workload: weights of delays, sizes of steps."""

import math
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from planner.domain.model_spec import ModelSpec
from planner.domain.serving_policy import ServingPolicy
from planner.estimate.lengths import LengthStatistics
from planner.workload.demand import prompts_in_flight

# Prompts' last chunks are short, but a step takes at least a decode step's time.
_CHUNK_WASTE = 1.08
# Two copies on the way into a step, at 4 and 5 GB/s (the published simulator's overhead).
_HOST_COPY_S_PER_BYTE = 1 / 4e9 + 1 / 5e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Numbers of the fixed point, in the order in which the compiled one reads them.

    A prompt takes the time of `steps_per_prompt` steps of `step_tokens`, and keeps others out of
    `chunks_per_prompt` steps (0: no step is too full). A visit of a node takes
    `cycle_weight` cycles of the node's decodes, `residual_weight` times what is left of a prompt
    step on average, and `convoy_weight` and `own_weight` prompt steps per request that all share
    (see `fixed_point`). Where no other node holds the same layers, a visit takes at least one step
    of all requests that gathered, with `lone_residual_weight` in place of `residual_weight`.
    `link_queue_weight` is how much longer prompts queue on a link than independent chunks would,
    since they come in bursts; `link_wait_weight` the same for what waits behind whole prompts. No
    more than `prompts_in_flight` prompts are under way. `prompts_first`, `grouped` and
    `straight_back` are 1 or 0: one queue per link, one message per step and next hop, new tokens
    from the last stage to the first without the coordinator between. No limit is infinity.
    """

    prompt_tokens: float
    output_tokens: float
    step_tokens: float
    steps_per_prompt: float
    cycle_weight: float
    residual_weight: float
    lone_residual_weight: float
    convoy_weight: float
    own_weight: float
    squares_ratio: float
    link_queue_weight: float
    link_wait_weight: float
    step_overhead_s: float
    copy_s_per_token: float
    activation_bytes: float
    token_bytes: float
    piece_bytes: float
    prompts_first: float
    grouped: float
    straight_back: float
    chunks_per_prompt: float
    cap_floor: float
    cap_divisor: float
    most_micro_batches: float
    prompts_in_flight: float
    tpot_limit_s: float = math.inf
    ttft_limit_s: float = math.inf

    def as_array(self) -> npt.NDArray[np.float64]:
        return np.array(astuple(self), dtype=np.float64)


def model_of(
    policy: ServingPolicy, *, spec: ModelSpec, lengths: LengthStatistics, nodes: int
) -> Model:
    """The delays' weights were fitted to simulations of plans of the published clusters."""
    chunk = policy.prompt_chunk_tokens
    if chunk is None:
        step_tokens, steps, squares = lengths.prompt_tokens, 1.0, lengths.squared_ratio
        chunks = 0.0
        cycle, residual, lone, convoy, own = 0.6, 0.63, 0.63, 0.6, 0.1
        queue, wait = 4.0, 2.5
    else:
        step_tokens = min(float(chunk), lengths.prompt_tokens)
        # The last chunk is half full, and the next prompt's first does not fit beside it; short
        # prompts go several to a step.
        together = chunk // lengths.prompt_tokens
        chunks = 1 / together if together else lengths.prompt_tokens / chunk + 0.5
        steps, squares = _CHUNK_WASTE * lengths.prompt_tokens / step_tokens, 1.0
        # Chains of 7 to 40 single nodes of three kinds have a `lone` of 0.4 to 2, short ones most.
        cycle, residual, lone, convoy, own = 1.05, 1.75, 1.2, 0.0, 0.0
        queue, wait = 5.0, 1.0
    return Model(
        prompt_tokens=lengths.prompt_tokens,
        output_tokens=lengths.output_tokens,
        step_tokens=step_tokens,
        steps_per_prompt=steps,
        cycle_weight=cycle,
        residual_weight=residual,
        lone_residual_weight=lone,
        convoy_weight=convoy,
        own_weight=own,
        squares_ratio=squares,
        link_queue_weight=queue,
        link_wait_weight=wait,
        step_overhead_s=policy.step_overhead_s,
        copy_s_per_token=spec.activation_bytes_per_token * _HOST_COPY_S_PER_BYTE,
        activation_bytes=spec.activation_bytes_per_token,
        token_bytes=spec.token_bytes,
        piece_bytes=math.inf if policy.piece_bytes is None else policy.piece_bytes,
        prompts_first=1.0 if policy.transmission == "fifo" else 0.0,
        grouped=1.0 if policy.messages == "grouped" else 0.0,
        straight_back=1.0 if policy.return_path == "first_stage" else 0.0,
        chunks_per_prompt=chunks,
        cap_floor=float(policy.decode_cap_floor),
        cap_divisor=policy.decode_cap_divisor or 0.0,
        most_micro_batches=policy.measured_micro_batches or 0.0,
        prompts_in_flight=float(prompts_in_flight(nodes)),
    )
