"""Attention of a ragged step over paged keys and values: gather pages, then SDPA.

On CPUs for which kernels were compiled, all rows follow their pages instead, and what a row gets
does not depend on the rows that are run with it.

Legend: T rows of the step that run the layer, or of each request of a group, B requests, M pages of
the longest of them, C context tokens, S tokens per page, P pages, N heads, K KV heads, H head size.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.engine.kv_cache import KvCache
from runtime.engine.sequence import Work
from runtime.models.compiled.library import DTYPES, MULTIPLE, Kernels, SpanRows, compiled_kernels
from runtime.models.decoder import AttentionRule
from runtime.models.dense_attention import attend


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Requests with T rows each, attended together, each over `blocks` pages from its own first one
    on. True in the mask: the row sees the token."""

    rows_BT: Tensor
    works: tuple[Work, ...]
    first_blocks: tuple[int, ...]
    blocks: int
    mask_B1TC: Tensor


class PagedAttention:
    """Attention of one step over paged keys and values; a `ModelRunner` makes one for each.

    Stores the keys and values of the rows of `works` and attends over their whole contexts.

    One object serves all layers of a step that the same requests run. `gather_tokens` bounds the
    tokens gathered at once for the rows of several requests (one is always gathered whole).
    """

    def __init__(self, works: Items[Work], cache: KvCache, *, gather_tokens: int) -> None:
        self._cache = cache
        self._device = cache.key_PSKH.device
        self._works = works
        self._tables = [(work.sequence.table, work.sequence.first) for work in works]
        counts = [work.chunk.n_tokens for work in works]
        starts = np.cumsum([0, *counts]).tolist()
        self._gather_tokens = gather_tokens
        self._groups: dict[int | None, list[_Group]] = {}  # by window
        self._kernels = _kernels_for(cache)
        self._rows = SpanRows(
            rows=np.array(starts[:-1], dtype=np.int64),
            counts=np.array(counts, dtype=np.int64),
            positions=np.array([work.chunk.position for work in works], dtype=np.int64),
        )

    def __call__(
        self,
        layer: int,
        query_TNH: Tensor,
        key_TKH: Tensor,
        value_TKH: Tensor,
        rule: AttentionRule,
        /,
    ) -> Tensor:
        """Attended rows [T, N, H]; an `Attend` of the decoder."""
        attended_TNH = torch.empty(query_TNH.shape, dtype=query_TNH.dtype, device=self._device)
        if self._kernels is not None:
            self._follow(self._kernels, layer, query_TNH, key_TKH, value_TKH, rule, attended_TNH)
            return attended_TNH
        self._store(layer, key_TKH, value_TKH)
        for group in self._groups_of(rule.window):
            attended_TNH[group.rows_BT] = self._gathered(layer, group, query_TNH, rule)
        return attended_TNH

    def _store(self, layer: int, key_TKH: Tensor, value_TKH: Tensor) -> None:
        page_tokens = self._cache.page_tokens
        slots = []
        for work in self._works:
            positions = np.arange(work.chunk.position, work.chunk.end)
            pages = _pages_of(work, layer)[positions // page_tokens]
            slots.append(pages * page_tokens + positions % page_tokens)
        slots_T = torch.from_numpy(np.concatenate(slots)).to(self._device)
        self._cache.key_PSKH.flatten(0, 1)[slots_T] = key_TKH
        self._cache.value_PSKH.flatten(0, 1)[slots_T] = value_TKH

    def _follow(
        self,
        kernels: Kernels,
        layer: int,
        query_TNH: Tensor,
        key_TKH: Tensor,
        value_TKH: Tensor,
        rule: AttentionRule,
        attended_TNH: Tensor,
    ) -> None:
        """Store keys and values, and attend, straight over the pages."""
        kernels.attend_rows(
            self._rows,
            np.array([table.address_of(layer - first) for table, first in self._tables], np.int64),
            query_TNH=_with_contiguous_rows(query_TNH),
            key_TKH=_with_contiguous_rows(key_TKH),
            value_TKH=_with_contiguous_rows(value_TKH),
            key_PSKH=self._cache.key_PSKH,
            value_PSKH=self._cache.value_PSKH,
            scale=rule.scale,
            window=rule.window,
            softcap=rule.softcap,
            attended_TNH=attended_TNH,
        )

    def _groups_of(self, window: int | None) -> list[_Group]:
        """Of as many rows each, the longest first, so that requests of like length share a group
        and little is padding."""
        if window in self._groups:
            return self._groups[window]
        page_tokens = self._cache.page_tokens
        rest = []
        for row, work in zip(self._rows.rows.tolist(), self._works, strict=True):
            seen = 0 if window is None else max(0, work.chunk.position + 1 - window)
            first = seen // page_tokens
            blocks = -(-work.chunk.end // page_tokens) - first
            rest.append((work.chunk.n_tokens, blocks, first, row, work))
        rest.sort(key=lambda each: each[:2], reverse=True)
        groups = self._groups[window] = []
        while rest:
            n_rows, blocks = rest[0][:2]
            most = max(1, self._gather_tokens // (n_rows * blocks * page_tokens))
            members = [each for each in rest[:most] if each[0] == n_rows]
            rest = rest[len(members) :]
            _, _, firsts, rows, works = zip(*members, strict=True)
            context_BC = self._counted(
                [first * page_tokens for first in firsts], blocks * page_tokens
            )
            positions_BT = self._counted([work.chunk.position for work in works], n_rows)
            mask_BTC = context_BC[:, None, :] <= positions_BT[:, :, None]
            if window is not None:
                mask_BTC &= context_BC[:, None, :] > positions_BT[:, :, None] - window
            groups.append(
                _Group(
                    rows_BT=self._counted(rows, n_rows),
                    works=works,
                    first_blocks=firsts,
                    blocks=blocks,
                    mask_B1TC=mask_BTC[:, None],
                )
            )
        return groups

    def _counted(self, starts: Items[int], count: int) -> Tensor:
        """From each start on `count` numbers, [B, count]."""
        starts_B1 = torch.tensor(starts, device=self._device)[:, None]
        return starts_B1 + torch.arange(count, device=self._device)

    def _gathered(
        self, layer: int, group: _Group, query_TNH: Tensor, rule: AttentionRule
    ) -> Tensor:
        """Attended rows [B, T, N, H]."""
        pages_BM = np.empty((len(group.works), group.blocks), dtype=np.int64)
        for row, (work, first) in enumerate(zip(group.works, group.first_blocks, strict=True)):
            pages = _pages_of(work, layer)[first:]
            blocks = min(len(pages), group.blocks)
            pages_BM[row, :blocks] = pages[:blocks]
            pages_BM[row, blocks:] = pages[0]  # masked, and never a page of another request
        index_BM = torch.from_numpy(pages_BM).to(self._device)
        attended_BNTH = attend(
            query_TNH[group.rows_BT].transpose(1, 2),
            _gather(self._cache.key_PSKH, index_BM).transpose(1, 2),
            _gather(self._cache.value_PSKH, index_BM).transpose(1, 2),
            group.mask_B1TC,
            rule,
        )
        return attended_BNTH.transpose(1, 2)


def _kernels_for(cache: KvCache) -> Kernels | None:
    """The compiled ones, where they can run over these pages."""
    pool_PSKH = cache.key_PSKH
    if pool_PSKH.device.type != "cpu" or pool_PSKH.dtype not in DTYPES:
        return None
    return compiled_kernels() if pool_PSKH.shape[-1] % MULTIPLE == 0 else None


def _pages_of(work: Work, layer: int) -> NDArray[np.int64]:
    """Page of each block of the request in that layer."""
    pages_B: NDArray[np.int64] = work.sequence.table.pages_LB[layer - work.sequence.first]
    return pages_B


def _with_contiguous_rows(rows_TKH: Tensor) -> Tensor:
    """Rows may lie apart in memory, as parts of a fused product do; heads of one may not."""
    if rows_TKH.stride(2) == 1 and rows_TKH.stride(1) == rows_TKH.shape[2]:
        return rows_TKH
    return rows_TKH.contiguous()


def _gather(pool_PSKH: Tensor, index_BM: Tensor) -> Tensor:
    """The tokens [B, M S, K, H] of pages; `index_select` copies whole pages, which indexing by a
    tensor does not."""
    gathered = pool_PSKH.index_select(0, index_BM.flatten())
    return gathered.view(len(index_BM), -1, *pool_PSKH.shape[2:])
