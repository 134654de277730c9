"""The KV cache of a stage: one pool of pages, each belonging to one layer of one request.

Because a page is of one layer, a request that runs only some of the stage's layers (partial
inference, Helix §4.3) takes only their room, and a stage's capacity is one number: pages.

Legend: P pages, S tokens per page, K KV heads, H head size, L layers of one request, B blocks
(page positions along the sequence).
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.models.config import ModelConfig


class NoFreePages(Exception):
    """The pool cannot give that many pages now; nothing was taken."""


class KvCacheCorrupt(RuntimeError):
    """Pages were lost or given out twice: a bug, never a user's mistake."""


class PagePool:
    """Which pages are free. Every page is free or in exactly one table."""

    def __init__(self, *, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._is_free = [True] * total

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.total - len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` pages. Raises NoFreePages when there are fewer."""
        if count > len(self._free):
            raise NoFreePages(f"{count} pages wanted, {len(self._free)} of {self.total} are free")
        split = len(self._free) - count
        pages = self._free[split:]
        del self._free[split:]
        for page in pages:
            self._is_free[page] = False
        return pages

    def give_back(self, pages: Sequence[int]) -> None:
        """Raises KvCacheCorrupt for a page that is free already or is none of ours."""
        for page in pages:
            if not 0 <= page < self.total or self._is_free[page]:
                raise KvCacheCorrupt(f"page {page} of {self.total} was given back but not in use")
            self._is_free[page] = True
            self._free.append(page)


class PageTable:
    """The pages of one request on this stage: the same number of blocks for each layer it runs."""

    def __init__(self, *, num_layers: int) -> None:
        self.num_layers = num_layers
        self.blocks = 0
        self._pages_LB: NDArray[np.int64] = np.empty((num_layers, 4), dtype=np.int64)

    @property
    def pages_LB(self) -> NDArray[np.int64]:
        """Page of each layer (row, 0 is the request's first here) and block (column)."""
        return self._pages_LB[:, : self.blocks]

    def append(self, pages: Sequence[int]) -> None:
        """Add blocks: a whole number of pages for each layer."""
        added = len(pages) // self.num_layers
        blocks = self.blocks + added
        if blocks > self._pages_LB.shape[1]:
            grown = np.empty((self.num_layers, 2 * blocks), dtype=np.int64)
            grown[:, : self.blocks] = self.pages_LB
            self._pages_LB = grown
        self._pages_LB[:, self.blocks : blocks] = np.reshape(pages, (self.num_layers, added))
        self.blocks = blocks

    def clear(self) -> list[int]:
        """Forget all pages and return them."""
        pages: list[int] = self.pages_LB.ravel().tolist()
        self.blocks = 0
        return pages


def page_bytes(config: ModelConfig, *, page_tokens: int) -> int:
    """Keys and values of `page_tokens` tokens in one layer."""
    return 2 * page_tokens * config.kv_size * config.dtype.itemsize


class KvCache:
    """The pages' memory and the pool over them."""

    def __init__(
        self, config: ModelConfig, *, pages: int, page_tokens: int, device: torch.device
    ) -> None:
        self.page_tokens = page_tokens
        self.pool = PagePool(total=pages)
        shape = (pages, page_tokens, config.num_kv_heads, config.head_size)
        # zeros, not empty: the memory is truly ours before the stage says it is ready
        self.key_PSKH = torch.zeros(shape, dtype=config.dtype, device=device)
        self.value_PSKH = torch.zeros(shape, dtype=config.dtype, device=device)

    @property
    def nbytes(self) -> int:
        return self.key_PSKH.nbytes + self.value_PSKH.nbytes

    def reserve(self, table: PageTable, *, tokens: int) -> None:
        """Make room in `table` for the first `tokens` tokens of its request.

        New pages are zeroed: attention masks slots not yet written, but NaN, left there by a
        request whose numbers overflowed, survives a mask. Raises NoFreePages, taking none, when
        the pool has too few.
        """
        blocks = -(-tokens // self.page_tokens)
        if blocks > table.blocks:
            pages = self.pool.take((blocks - table.blocks) * table.num_layers)
            self.key_PSKH[pages] = 0
            self.value_PSKH[pages] = 0
            table.append(pages)

    def release(self, table: PageTable) -> None:
        """Give all pages of `table` back."""
        self.pool.give_back(table.clear())

    def check(self, tables: Sequence[PageTable]) -> None:
        """Raises KvCacheCorrupt unless `tables` hold, each once, exactly the pages in use."""
        held = [page for table in tables for page in table.pages_LB.ravel().tolist()]
        if len(set(held)) != len(held):
            raise KvCacheCorrupt("a page is in two tables")
        if len(held) != self.pool.used:
            raise KvCacheCorrupt(
                f"{self.pool.used} pages are in use but the tables hold {len(held)}"
            )
