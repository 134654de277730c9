"""The memory of a stage's KV cache: one pool of pages, each one layer of one request.

Because a page is of one layer, a request that runs only some of the stage's layers (partial
inference, Helix §4.3) takes only their room, and a stage's capacity is one number: pages.

Legend: P pages, S tokens per page, K KV heads, H head size.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from runtime.checkpoints.decoder_sizes import DecoderSizes
from runtime.engine.page_memory import PageMemory, page_memory
from runtime.engine.pages import BlockTable, KvCacheManager, PageMoves
from runtime.models.model_config import ModelConfig


def page_bytes(sizes: DecoderSizes, *, page_tokens: int) -> int:
    """Keys and values of `page_tokens` tokens in one layer."""
    return page_tokens * sizes.kv_token_bytes


class PageCache(ABC):
    """Owns the pages of a stage's KV cache; a `StepRunner` reads and writes it.

    The memory of pages, in one or more parts, and the books over them.
    """

    def __init__(self, *memories: PageMemory, pages: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.kv_manager = KvCacheManager(pages=pages, page_tokens=page_tokens, prepare=self.clear)
        self._memories = memories

    @property
    def nbytes(self) -> int:
        return sum(memory.pages_P.nbytes for memory in self._memories)

    @property
    def claimed_bytes(self) -> int:
        """Of `nbytes`, at least so much is taken from the system."""
        return sum(memory.claimed_bytes for memory in self._memories)

    @abstractmethod
    def clear(self, pages: list[int]) -> None:
        """Clear them before a step writes to them: attention masks slots not yet written, but NaN,
        left there by a request whose numbers overflowed, survives a mask."""

    def resize(self, pages: int, tables: Iterable[BlockTable]) -> None:
        """Have `pages` from now on, those in use as they were; see `KvCacheManager.resize`."""
        self.move(pages, self.kv_manager.resize(pages, tables))

    def move(self, pages: int, moves: PageMoves) -> None:
        """Have memory for `pages`, and what is in the moved ones where they are now."""
        for memory in self._memories:
            memory.resize(pages, moves)


class KvCache(PageCache):
    """Owns the KV cache of our own decoders; a `ModelRunner` reads and writes it.

    `most_pages`: that it is expected to become.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        pages: int,
        page_tokens: int,
        device: torch.device,
        most_pages: int = 0,
    ) -> None:
        page_shape = (page_tokens, config.num_kv_heads, config.head_size)
        keys_and_values = (
            page_memory(pages, page_shape, most=most_pages, dtype=config.dtype, device=device)
            for _ in range(2)
        )
        super().__init__(*keys_and_values, pages=pages, page_tokens=page_tokens)

    @property
    def key_PSKH(self) -> Tensor:
        """Until the next `resize`: do not keep it."""
        return self._memories[0].pages_P

    @property
    def value_PSKH(self) -> Tensor:
        return self._memories[1].pages_P

    def clear(self, pages: list[int]) -> None:
        """See `PageCache`."""
        self.key_PSKH[pages] = 0
        self.value_PSKH[pages] = 0
