"""The KV cache of a stage that vLLM computes: a pool of pages, each one layer of one request.

Every attention layer is given the whole pool; the page tables say what is whose.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from runtime.engine.host_memory import Parcel
from runtime.engine.kv_cache import PageCache
from runtime.engine.page_memory import page_memory
from runtime.engine.pages import PageMoves
from runtime.engine.vllm_model import VllmModel


class VllmCache(PageCache):
    """Owns the KV cache of vLLM's layers; a `VllmRunner` reads and writes it.

    `models` keep their keys and values in it, at first one. `most_pages`: that it is expected to
    become.
    """

    def __init__(self, model: VllmModel, *, pages: int, most_pages: int = 0) -> None:
        self.models = [model]
        self._device = model.device
        self._given_out: list[int] = []
        self._memory = page_memory(
            pages, (model.page_bytes,), most=most_pages, dtype=torch.int8, device=model.device
        )
        super().__init__(self._memory, pages=pages, page_tokens=model.page_tokens)
        self._bind()

    @property
    def pool_PB(self) -> Tensor:
        """Valid until the next `resize`."""
        return self._memory.pages_P

    def add(self, model: VllmModel) -> None:
        """Have it keep its keys and values in these pages too."""
        self.models.append(model)
        model.bind(self.pool_PB.view(-1), len(self.pool_PB))

    def remove(self, model: VllmModel) -> None:
        """Its keys and values are of no more use."""
        model.unbind()
        self.models.remove(model)

    def clear(self, pages: list[int]) -> None:
        """See `PageCache`: notes them; `prepare` clears them, once a step."""
        self._given_out += pages

    def prepare(self, parcel: Parcel) -> Callable[[], None]:
        """What clears the pages given out since, once what it adds to `parcel` is sent."""
        if not self._given_out:
            return lambda: None
        given_out_P = parcel.add(np.array(self._given_out, dtype=np.int64))
        self._given_out.clear()
        return lambda: self._zero(given_out_P())

    def _zero(self, pages_P: Tensor) -> None:
        self.pool_PB.index_fill_(0, pages_P, 0)

    def move(self, pages: int, moves: PageMoves) -> None:
        """See `PageCache`."""
        self._zero(torch.tensor(self._given_out, dtype=torch.int64, device=self._device))
        self._given_out.clear()
        for model in self.models:
            model.unbind()
        super().move(pages, moves)
        self._bind()

    def _bind(self) -> None:
        for model in self.models:
            model.bind(self.pool_PB.view(-1), len(self.pool_PB))
