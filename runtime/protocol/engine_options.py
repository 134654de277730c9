"""How a stage forms its steps: ours by default, the papers' on request, for comparison."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class StepOrder(StrEnum):
    """Whose rows run first: decodes, or whatever came first (the published systems)."""

    DECODES_FIRST = "decodes_first"
    ARRIVAL = "arrival"


class PromptRule(StrEnum):
    """Prompts run in chunks that fit the step's budget, or whole (the published systems)."""

    CHUNKED = "chunked"
    WHOLE = "whole"


class PromptStepRule(StrEnum):
    """How many tokens of prompts that begin here a step takes: no more than get soonest through
    over the next link, or whatever there is room for (the published systems)."""

    BY_LINK = "by_link"
    BY_ROOM = "by_room"


class MessageRule(StrEnum):
    """What a step sends to one next hop: one message of decodes and one of rows of prompts, or one
    for each request (Helix's prototype)."""

    PER_HOP = "per_hop"
    PER_REQUEST = "per_request"


class PrefixRule(StrEnum):
    """Whether the pages of a prompt are kept for others that begin with the same tokens."""

    REUSE = "reuse"
    FORGET = "forget"


class SharedCoresRule(StrEnum):
    """What a stage does that finds out that it shares cores with the other stages: form fewer,
    larger steps, or nothing (the published systems, which have a machine for each)."""

    GATHER = "gather"
    IGNORE = "ignore"


class EngineOptions(BaseModel):
    """The policies of a stage.

    `prefill_tokens`: most prompt tokens of a step, whatever decodes it has; None: what the decodes
    leave of `max_batch_tokens`. `prompt_steps` may take fewer. `max_prompts`: most prompts of a
    step. `decode_cap`: most decodes of a step; "adaptive" is ceil(R / M) of R decoding requests,
    with M micro-batches from measured times (MoLink §4.3), at most `most_micro_batches` and never
    less than `least_decode_cap` decodes; "off" takes all that are there. `micro_batches` fixes M
    instead of measuring it. `shared_cores` bounds a measured M by what the cores can run at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: StepOrder = StepOrder.DECODES_FIRST
    prompts: PromptRule = PromptRule.CHUNKED
    prefill_tokens: int | None = Field(default=None, ge=1)
    prompt_steps: PromptStepRule = PromptStepRule.BY_LINK
    max_prompts: int | None = Field(default=None, ge=1)
    decode_cap: Literal["adaptive", "off"] | Annotated[int, Field(ge=1)] = "adaptive"
    micro_batches: float | None = Field(default=None, ge=1)
    least_decode_cap: int = Field(default=16, ge=1)
    most_micro_batches: int = Field(default=6, ge=1)
    shared_cores: SharedCoresRule = SharedCoresRule.GATHER
    messages: MessageRule = MessageRule.PER_HOP
    prefixes: PrefixRule = PrefixRule.REUSE
