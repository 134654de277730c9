"""How a memory budget is split into weights, activations and KV pages."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace

from planner.domain.node_memory import KvMinimum
from planner.memory import ModelMemory, StageMemory, StepShape
from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits

_BUDGET_PER_ACTIVATIONS = 8
_FREE_SHARE = 0.9  # of what is free now; the rest is for what grows beside us


class BudgetTooSmall(Exception):
    """The memory budget leaves no room for a useful KV cache."""


def activation_bytes(config: DecoderSizes, limits: EngineLimits, *, has_head: bool) -> int:
    """Upper estimate of what one step needs beside weights and pages."""
    shape = StepShape(
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        query_size=config.query_size,
        kv_size=config.kv_size,
        vocab_size=config.vocab_size,
        element_bytes=config.element_bytes,
    )
    return int(
        shape.activation_bytes(
            limits.max_batch_tokens, context_tokens=limits.max_context_tokens, has_head=has_head
        )
    )


def model_memory(
    config: DecoderSizes,
    limits: EngineLimits,
    *,
    kv_minimum: KvMinimum | None = None,
) -> ModelMemory:
    """What the model takes in steps of these limits; without a minimum, KV of one whole context."""
    table, norm = config.embedding_bytes, config.hidden_size * config.element_bytes
    activations = activation_bytes(config, limits, has_head=False)
    return ModelMemory(
        num_layers=config.num_layers,
        layer=config.bytes_per_layer,
        first=table,
        last=table + norm,
        both=(1 if config.tie_word_embeddings else 2) * table + norm,
        kv_token=page_bytes(config, page_tokens=1),
        page_tokens=limits.page_tokens,
        kv_minimum=kv_minimum or KvMinimum(requests=1, tokens=limits.max_context_tokens),
        activations=activations,
        head_activations=activation_bytes(config, limits, has_head=True) - activations,
        reserve=limits.reserve_bytes,
    )


def smallest_step(limits: EngineLimits) -> EngineLimits:
    """`limits` with steps of one page of tokens, which `fit_step` never goes below."""
    return replace(limits, max_batch_tokens=min(limits.max_batch_tokens, limits.page_tokens))


def fit_step(
    config: DecoderSizes,
    limits: EngineLimits,
    *,
    memory_budget_bytes: int,
    needed_bytes: Callable[[EngineLimits], float] = lambda _: 0.0,
) -> EngineLimits:
    """`limits` with steps halved until activations take an eighth of the budget at most, and
    `needed_bytes` of a stage with such steps are within it.

    Never below one page of tokens. So one deployment-wide max_batch_tokens suits large and small
    nodes: a small one runs a prompt in smaller steps instead of refusing its layers.
    """
    allowed = memory_budget_bytes // _BUDGET_PER_ACTIVATIONS
    while limits.max_batch_tokens > limits.page_tokens and (
        activation_bytes(config, limits, has_head=True) > allowed
        or needed_bytes(limits) > memory_budget_bytes
    ):
        halved = max(limits.page_tokens, limits.max_batch_tokens // 2)
        limits = replace(limits, max_batch_tokens=halved)
    return limits


def stage_memory(config: DecoderSizes, limits: EngineLimits, ranges: Items[range]) -> StageMemory:
    """Of the weights of all `ranges` of layers, each once, and of steps through any of them.

    The least KV cache is one request of `max_context_tokens` through the longest of `ranges`.
    """
    return StageMemory(
        weights=config.weights_bytes_of(set().union(*ranges)),
        activations=_activation_bytes(config, limits, ranges),
        reserve=limits.reserve_bytes,
        kv_minimum=_least_pages(limits, ranges)
        * page_bytes(config, page_tokens=limits.page_tokens),
    )


def kv_pages(
    config: DecoderSizes, limits: EngineLimits, *, memory_budget_bytes: int, ranges: Items[range]
) -> int:
    """Pages that fit beside activations and the weights of all `ranges` of layers, each once.

    Raises BudgetTooSmall when one request of `max_context_tokens` through the longest of `ranges`
    does not fit, for then the stage could not keep its promise.
    """
    memory = stage_memory(config, limits, ranges)
    if memory.needed > memory_budget_bytes:
        raise BudgetTooSmall(
            f"the memory budget of {memory_budget_bytes} bytes is too small for layers "
            f"{_told(ranges)}: {memory.needed:.0f} bytes are needed "
            f"({memory.weights:.0f} for weights, {memory.activations:.0f} for activations of steps "
            f"of {limits.max_batch_tokens} tokens, {memory.reserve:.0f} as a reserve, "
            f"{memory.kv_minimum:.0f} for the KV cache of one request of "
            f"{limits.max_context_tokens} tokens); raise the budget, give the node "
            "fewer layers, or lower max_context_tokens"
        )
    one_page = page_bytes(config, page_tokens=limits.page_tokens)
    return int(memory.kv_bytes(memory_budget_bytes) // one_page)


def pages_in_free_memory(
    config: DecoderSizes, limits: EngineLimits, *, free_bytes: int, ranges: Items[range]
) -> int:
    """Pages that fit beside activations into what is free once the weights are loaded.

    What other processes hold is not free, even within the budget. Raises BudgetTooSmall when
    one request of `max_context_tokens` does not fit.
    """
    activations = _activation_bytes(config, limits, ranges)
    one_page = page_bytes(config, page_tokens=limits.page_tokens)
    pages = (int(free_bytes * _FREE_SHARE) - activations) // one_page
    least = _least_pages(limits, ranges)
    if pages < least:
        raise BudgetTooSmall(
            f"{free_bytes} bytes are free beside the weights of layers {_told(ranges)}, other "
            f"processes hold the rest; {activations} for activations and {least * one_page} for "
            f"the KV cache of one request of {limits.max_context_tokens} tokens are needed; end "
            "what else uses the memory, give the node fewer layers, or lower max_context_tokens"
        )
    return pages


def _activation_bytes(config: DecoderSizes, limits: EngineLimits, ranges: Items[range]) -> int:
    has_head = any(each.stop == config.num_layers for each in ranges)
    return activation_bytes(config, limits, has_head=has_head)


def _least_pages(limits: EngineLimits, ranges: Items[range]) -> int:
    return limits.context_pages * max(len(each) for each in ranges)


def _told(ranges: Items[range]) -> str:
    return " and ".join(f"[{each.start}, {each.stop})" for each in ranges)
