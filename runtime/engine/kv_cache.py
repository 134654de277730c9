"""The memory of a stage's KV cache: one pool of pages, each one layer of one request.

Because a page is of one layer, a request that runs only some of the stage's layers (partial
inference, Helix §4.3) takes only their room, and a stage's capacity is one number: pages.

Legend: P pages, S tokens per page, K KV heads, H head size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.engine.pages import PageBooks
from runtime.models.config import ModelConfig


def page_bytes(config: ModelConfig, *, page_tokens: int) -> int:
    """Keys and values of `page_tokens` tokens in one layer."""
    return 2 * page_tokens * config.kv_size * config.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPools:
    """The pages' memory alone."""

    key_PSKH: Tensor
    value_PSKH: Tensor

    @property
    def page_tokens(self) -> int:
        return self.key_PSKH.shape[1]


class KvCache:
    """The pages' memory and the books over them."""

    def __init__(
        self, config: ModelConfig, *, pages: int, page_tokens: int, device: torch.device
    ) -> None:
        self.page_tokens = page_tokens
        self.books = PageBooks(pages=pages, page_tokens=page_tokens, prepare=self.clear)
        shape = (pages, page_tokens, config.num_kv_heads, config.head_size)
        # zeros, not empty: the memory is truly ours before the stage says it is ready
        self.pools = KvPools(
            key_PSKH=torch.zeros(shape, dtype=config.dtype, device=device),
            value_PSKH=torch.zeros(shape, dtype=config.dtype, device=device),
        )

    @property
    def key_PSKH(self) -> Tensor:
        return self.pools.key_PSKH

    @property
    def value_PSKH(self) -> Tensor:
        return self.pools.value_PSKH

    @property
    def nbytes(self) -> int:
        return self.key_PSKH.nbytes + self.value_PSKH.nbytes

    def clear(self, pages: list[int]) -> None:
        """Attention masks slots not yet written, but NaN, left there by a request whose numbers
        overflowed, survives a mask."""
        self.key_PSKH[pages] = 0
        self.value_PSKH[pages] = 0
