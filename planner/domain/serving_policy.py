"""Serving policy of a forecast: how nodes batch, links transmit and requests are admitted."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from planner.domain.errors import InvalidProblem
from planner.domain.limits import Range, check_fields

Messages = Literal["per_request", "grouped"]
Transmission = Literal["fifo", "decode_first"]
ReturnPath = Literal["coordinator", "first_stage"]
_FROM_ONE, _SHARE = Range(1), Range(0, 1, above=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPolicy:
    """Policy of the nodes' steps and the links between them.

    `prompt_chunk_tokens`: a step takes at most so many prompt tokens, cutting prompts; None runs
    whole prompts. `decode_cap_divisor` M: a step takes at most ceil(R / M) decodes of R requests on
    the node, never fewer than `decode_cap_floor` (MoLink §4.3 seen from one stage); None takes all
    that arrived. `measured_micro_batches` in its place takes M from what each node measures, as the
    runtime does: how often its step fits into the time requests are away, at most so often.
    `published_batch_limits`: a step also keeps to the profile's `batch_limits`.
    `messages`: one for each request, or one for each step and next hop. `transmission`: "fifo" in
    one queue per link, "decode_first" lets decodes overtake waiting prompts. A prompt on its way
    makes room for decodes after at most `piece_bytes` (None: never). `return_path`: a new token
    reaches the first stage by way of the coordinator, or straight from the last stage, which
    notifies the coordinator as well ("first_stage"; without a link from last to first it is sent by
    way of the coordinator). `kv_high_water` is the share of KV room up to which requests are
    admitted. Plan files may still have the `former_keys`.
    """

    former_keys: ClassVar[tuple[str, ...]] = ("decode_lane_share", "starvation_limit")
    prompt_chunk_tokens: Annotated[int, _FROM_ONE] | None
    decode_cap_divisor: Annotated[float, _FROM_ONE] | None
    decode_cap_floor: Annotated[int, _FROM_ONE] = 16
    measured_micro_batches: Annotated[float, _FROM_ONE] | None = None
    published_batch_limits: bool
    messages: Messages
    transmission: Transmission
    piece_bytes: Annotated[float, _FROM_ONE] | None = 65536.0
    return_path: ReturnPath = "coordinator"
    kv_high_water: Annotated[float, _SHARE] = 0.85
    step_overhead_s: Annotated[float, Range(0)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if None not in (self.decode_cap_divisor, self.measured_micro_batches):
            raise InvalidProblem(
                f"decode_cap_divisor is {self.decode_cap_divisor} and measured_micro_batches "
                f"{self.measured_micro_batches}; one of them must be none"
            )


# Helix's prototype: take what arrived, whole prompts, one message per request, one queue per link.
PUBLISHED_POLICY = ServingPolicy(
    prompt_chunk_tokens=None,
    decode_cap_divisor=None,
    published_batch_limits=True,
    messages="per_request",
    transmission="fifo",
)

# What stages do by default (`runtime.protocol.engine_options`).
RUNTIME_POLICY = ServingPolicy(
    prompt_chunk_tokens=250,
    decode_cap_divisor=None,
    measured_micro_batches=6,
    published_batch_limits=False,
    messages="grouped",
    transmission="decode_first",
    return_path="first_stage",
)
