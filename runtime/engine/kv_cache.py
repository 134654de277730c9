"""The memory of a stage's KV cache: one pool of pages, each one layer of one request.

Because a page is of one layer, a request that runs only some of the stage's layers (partial
inference, Helix §4.3) takes only their room, and a stage's capacity is one number: pages.

Legend: P pages, U those in use, S tokens per page, K KV heads, H head size.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.engine.pages import PageBooks, PageTable
from runtime.models.config import ModelConfig
from runtime.models.free_memory import free_bytes

_PAGES_AT_ONCE = 1024


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
        self._config = config
        self._device = device
        self.pools = self._make(pages)

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

    def resize(self, pages: int, tables: Iterable[PageTable]) -> None:
        """Have `pages` from now on, those in use as they were; see `PageBooks.resize`.

        The memory before is given back first, so nobody else may keep `pools`: what is in use
        waits beside, on the host where the device has no room for it.
        """
        moves = self.books.resize(pages, tables)
        before = torch.from_numpy(moves.before)
        aside_bytes = len(before) * page_bytes(self._config, page_tokens=self.page_tokens)
        place = self._device if aside_bytes < free_bytes(self._device) else torch.device("cpu")
        key_USKH = copied(self.pools.key_PSKH, before, place=place)
        value_USKH = copied(self.pools.value_PSKH, before, place=place)
        del self.pools
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        self.pools = self._make(pages)
        after = torch.from_numpy(moves.after).to(self._device)
        self.pools.key_PSKH[after] = key_USKH.to(self._device)
        self.pools.value_PSKH[after] = value_USKH.to(self._device)

    def _make(self, pages: int) -> KvPools:
        config, device = self._config, self._device
        shape = (pages, self.page_tokens, config.num_kv_heads, config.head_size)
        # zeros, not empty: the memory is truly ours before the stage says it is ready
        return KvPools(
            key_PSKH=torch.zeros(shape, dtype=config.dtype, device=device),
            value_PSKH=torch.zeros(shape, dtype=config.dtype, device=device),
        )


def copied(pool_PSKH: Tensor, pages_U: Tensor, *, place: torch.device) -> Tensor:
    """Those pages [U, S, K, H] on `place`, copied a few at a time."""
    copy_USKH = torch.empty(
        (len(pages_U), *pool_PSKH.shape[1:]), dtype=pool_PSKH.dtype, device=place
    )
    for start in range(0, len(pages_U), _PAGES_AT_ONCE):
        some = slice(start, start + _PAGES_AT_ONCE)
        copy_USKH[some] = pool_PSKH[pages_U[some].to(pool_PSKH.device)].to(place)
    return copy_USKH
