"""The step policies of the published systems, as benchmarks give them in their files."""

from runtime.protocol.engine_options import (
    EngineOptions,
    MessageRule,
    PrefixRule,
    PromptRule,
    PromptStepRule,
    SharedCoresRule,
    StepOrder,
)

# What the published systems do: all that arrived, first in first out, prompts whole.
PUBLISHED = EngineOptions(
    order=StepOrder.ARRIVAL,
    prompts=PromptRule.WHOLE,
    prompt_steps=PromptStepRule.BY_ROOM,
    decode_cap="off",
    shared_cores=SharedCoresRule.IGNORE,
    messages=MessageRule.PER_REQUEST,
    prefixes=PrefixRule.FORGET,
)
