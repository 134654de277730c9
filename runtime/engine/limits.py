"""What bounds a stage's memory besides the model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Page, step and context, in tokens. `reserve_bytes` of the memory budget stay free: what the
    allocator of a GPU loses between tensors, as a profile measured it."""

    page_tokens: int
    max_batch_tokens: int
    max_context_tokens: int
    reserve_bytes: int = 0

    @property
    def context_pages(self) -> int:
        """Pages of one request of the longest context in one layer."""
        return -(-self.max_context_tokens // self.page_tokens)

    @property
    def most_rows(self) -> int:
        """Of a step: as many decodes as it may have, and as many tokens of prompts."""
        return 2 * self.max_batch_tokens
