"""How a memory budget is split into weights, activations and KV pages."""

from runtime.engine.kv_cache import page_bytes
from runtime.models.config import ModelConfig


class BudgetTooSmall(Exception):
    """The memory budget leaves no room for a useful KV cache."""


def activation_bytes(
    config: ModelConfig, *, max_batch_tokens: int, max_context_tokens: int, has_head: bool
) -> int:
    """Upper estimate of what one step needs beside weights and pages.

    Rows of a step: its budget plus one chunk of another stage's budget. Per row: hidden, normed
    and summed states, fused query/key/value with their rotated copies, gate/up and their
    product. Once: keys and values gathered for one context. Where the head is: float32 logits
    and a normed row for each row of a decode-only step.
    """
    size = config.dtype.itemsize
    per_row = 4 * config.hidden_size + 3 * (config.query_size + config.kv_size)
    per_row += 4 * config.intermediate_size
    gathered = 4 * max_context_tokens * config.kv_size
    head = max_batch_tokens * config.vocab_size * 4 if has_head else 0
    return (2 * max_batch_tokens * per_row + gathered) * size + head


def kv_pages(
    config: ModelConfig,
    *,
    memory_budget_bytes: int,
    first: int,
    end: int,
    page_tokens: int,
    max_batch_tokens: int,
    max_context_tokens: int,
) -> int:
    """Pages that fit beside weights of layers [first, end) and activations.

    Raises BudgetTooSmall when one request of `max_context_tokens` through all layers does not
    fit, for then the stage could not keep its promise.
    """
    weights = config.weights_bytes(first, end)
    activations = activation_bytes(
        config,
        max_batch_tokens=max_batch_tokens,
        max_context_tokens=max_context_tokens,
        has_head=end == config.num_layers,
    )
    one_page = page_bytes(config, page_tokens=page_tokens)
    pages = (memory_budget_bytes - weights - activations) // one_page
    needed = -(-max_context_tokens // page_tokens) * (end - first)
    if pages < needed:
        needed_bytes = weights + activations + needed * one_page
        raise BudgetTooSmall(
            f"the memory budget of {memory_budget_bytes} bytes is too small for layers "
            f"[{first}, {end}): {needed_bytes} bytes are needed ({weights} for weights, "
            f"{activations} for activations, {needed * one_page} for the KV cache of one request "
            f"of {max_context_tokens} tokens); raise the budget, give the node fewer layers, or "
            "shorten the context"
        )
    return pages
