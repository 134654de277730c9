"""How a memory budget is split into weights, activations and KV pages."""

from collections.abc import Sequence as Items
from dataclasses import replace

from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits
from runtime.models.model_config import ModelConfig

_BUDGET_PER_ACTIVATIONS = 8
_FREE_SHARE = 0.9  # of what is free now; the rest is for what grows beside us


class BudgetTooSmall(Exception):
    """The memory budget leaves no room for a useful KV cache."""


def activation_bytes(config: ModelConfig, limits: EngineLimits, *, has_head: bool) -> int:
    """Upper estimate of what one step needs beside weights and pages.

    Rows of a step: decodes up to its budget, and one prefill of as many tokens. Per row: hidden
    states before, normed and after, and the larger of attention's (fused query/key/value, their
    rotated copies) and the MLP's (gate and up, their product). Once: keys and values gathered
    for one context. Where the head is: float32 logits for each row of a decode-only step.
    """
    attention = 3 * (config.query_size + 2 * config.kv_size)
    per_row = 3 * config.hidden_size + max(attention, 4 * config.intermediate_size)
    gathered = 4 * limits.max_context_tokens * config.kv_size
    head = limits.max_batch_tokens * config.vocab_size * 4 if has_head else 0
    return (2 * limits.max_batch_tokens * per_row + gathered) * config.dtype.itemsize + head


def fit_step(
    config: ModelConfig, limits: EngineLimits, *, memory_budget_bytes: int
) -> EngineLimits:
    """`limits` with steps halved until activations take an eighth of the budget at most.

    Never below one page of tokens. So one deployment-wide max_batch_tokens suits large and small
    nodes: a small one runs a prompt in smaller steps instead of refusing its layers.
    """
    allowed = memory_budget_bytes // _BUDGET_PER_ACTIVATIONS
    while (
        limits.max_batch_tokens > limits.page_tokens
        and activation_bytes(config, limits, has_head=True) > allowed
    ):
        halved = max(limits.page_tokens, limits.max_batch_tokens // 2)
        limits = replace(limits, max_batch_tokens=halved)
    return limits


def kv_pages(
    config: ModelConfig, limits: EngineLimits, *, memory_budget_bytes: int, ranges: Items[range]
) -> int:
    """Pages that fit beside activations and the weights of all `ranges` of layers, each once.

    Raises BudgetTooSmall when one request of `max_context_tokens` through the longest of `ranges`
    does not fit, for then the stage could not keep its promise.
    """
    weights = config.weights_bytes_of(set().union(*ranges))
    activations = _activation_bytes(config, limits, ranges)
    one_page = page_bytes(config, page_tokens=limits.page_tokens)
    pages = (memory_budget_bytes - weights - activations) // one_page
    least = _least_pages(limits, ranges)
    if pages < least:
        raise BudgetTooSmall(
            f"the memory budget of {memory_budget_bytes} bytes is too small for layers "
            f"{_told(ranges)}: {weights + activations + least * one_page} bytes are needed "
            f"({weights} for weights, {activations} for activations of steps of "
            f"{limits.max_batch_tokens} tokens, {least * one_page} for the KV cache of one request "
            f"of {limits.max_context_tokens} tokens); raise the budget, give the node fewer "
            "layers, or lower max_context_tokens"
        )
    return pages


def pages_in_free_memory(
    config: ModelConfig, limits: EngineLimits, *, free_bytes: int, ranges: Items[range]
) -> int:
    """Pages that fit beside activations into what is free once the weights are loaded.

    What other processes hold is not free, whatever the budget says. Raises BudgetTooSmall when
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


def _activation_bytes(config: ModelConfig, limits: EngineLimits, ranges: Items[range]) -> int:
    has_head = any(each.stop == config.num_layers for each in ranges)
    return activation_bytes(config, limits, has_head=has_head)


def _least_pages(limits: EngineLimits, ranges: Items[range]) -> int:
    return limits.context_pages * max(len(each) for each in ranges)


def _told(ranges: Items[range]) -> str:
    return " and ".join(f"[{each.start}, {each.stop})" for each in ranges)
