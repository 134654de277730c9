"""Attention of a ragged step over paged keys and values: gather pages, then SDPA.

On CPUs for which kernels were compiled, all rows follow their pages instead, and what a row gets
does not depend on the rows that are run with it.

Legend: T rows of the step that run the layer, B decoding requests, M pages of the longest of
them, C context tokens, S tokens per page, P pages, N heads, K KV heads, G = N/K, H head size.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from runtime.engine.kv_cache import KvCache
from runtime.engine.sequence import Chunk, Work
from runtime.models.compiled.library import DTYPES, MULTIPLE, Kernels, SpanRows, compiled_kernels
from runtime.models.decoder import AttentionRule


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodeGroup:
    """Single rows attended together, each over `blocks` pages from its own first one on."""

    rows_B: Tensor
    works: tuple[Work, ...]
    first_blocks: tuple[int, ...]
    blocks: int
    mask_B11C: Tensor


class PagedAttention:
    """Attention of one step over paged keys and values; a `ModelRunner` makes one for each.

    Stores the keys and values of the rows of `works` and attends over their whole contexts.

    One object serves all layers of a step that the same requests run. `gather_tokens` bounds the
    tokens gathered at once for decodes (one request is always gathered whole).
    """

    def __init__(self, works: Items[Work], cache: KvCache, *, gather_tokens: int) -> None:
        self._cache = cache
        self._device = cache.key_PSKH.device
        self._works = works
        self._tables = [(work.sequence.table, work.sequence.first) for work in works]
        counts = [work.chunk.n_tokens for work in works]
        starts = np.cumsum([0, *counts]).tolist()
        placed = [*zip(starts, works, strict=False)]
        self._prefills = [(start, work) for start, work in placed if work.chunk.n_tokens > 1]
        self._decodes = [(start, work) for start, work in placed if work.chunk.n_tokens == 1]
        self._gather_tokens = gather_tokens
        self._decode_groups: dict[int | None, list[_DecodeGroup]] = {}  # by window
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
        for group in self._groups(rule.window):
            attended_TNH[group.rows_B] = self._decode(layer, group, query_TNH[group.rows_B], rule)
        for start, work in self._prefills:
            chunk = work.chunk
            rows = slice(start, start + chunk.n_tokens)
            first = _first_seen(chunk.position, rule.window)
            if chunk.position == 0:  # the context is these very rows
                key_CKH, value_CKH = key_TKH[rows], value_TKH[rows]
            else:
                first, key_CKH, value_CKH = self._context(layer, work, first)
            attended_TNH[rows] = _prefill(chunk, first, query_TNH[rows], key_CKH, value_CKH, rule)
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

    def _groups(self, window: int | None) -> list[_DecodeGroup]:
        """Longest first, so that requests of like length share a group and little is padding."""
        if window in self._decode_groups:
            return self._decode_groups[window]
        page_tokens = self._cache.page_tokens
        groups = []
        rest = [
            (row, work, _first_seen(work.chunk.position, window) // page_tokens)
            for row, work in self._decodes
        ]
        rest.sort(key=lambda each: _blocks(each[1].chunk.end, page_tokens) - each[2], reverse=True)
        while rest:
            blocks = _blocks(rest[0][1].chunk.end, page_tokens) - rest[0][2]
            size = max(1, self._gather_tokens // (blocks * page_tokens))
            members, rest = rest[:size], rest[size:]
            first_blocks = tuple(first_block for _, _, first_block in members)
            ends = [[work.chunk.end] for _, work, _ in members]
            ends_B1 = torch.tensor(ends, device=self._device)
            starts_B1 = torch.tensor([[block * page_tokens] for block in first_blocks])
            context_BC = torch.arange(blocks * page_tokens, device=self._device) + starts_B1.to(
                self._device
            )
            mask_BC = context_BC < ends_B1
            if window is not None:
                mask_BC &= context_BC >= ends_B1 - window
            groups.append(
                _DecodeGroup(
                    rows_B=torch.tensor([row for row, _, _ in members], device=self._device),
                    works=tuple(work for _, work, _ in members),
                    first_blocks=first_blocks,
                    blocks=blocks,
                    mask_B11C=mask_BC[:, None, None, :],
                )
            )
        self._decode_groups[window] = groups
        return groups

    def _decode(
        self, layer: int, group: _DecodeGroup, query_BNH: Tensor, rule: AttentionRule
    ) -> Tensor:
        pages_BM = np.empty((len(group.works), group.blocks), dtype=np.int64)
        for row, (work, first) in enumerate(zip(group.works, group.first_blocks, strict=True)):
            pages = _pages_of(work, layer)[first:]
            blocks = min(len(pages), group.blocks)
            pages_BM[row, :blocks] = pages[:blocks]
            pages_BM[row, blocks:] = pages[0]  # masked, and never a page of another request
        index_BM = torch.from_numpy(pages_BM).to(self._device)
        key_BKCH = _gather(self._cache.key_PSKH, index_BM).transpose(1, 2)
        value_BKCH = _gather(self._cache.value_PSKH, index_BM).transpose(1, 2)
        # the G heads that share a KV head stand where SDPA expects query positions
        batch, heads, size = query_BNH.shape
        query_BKGH = query_BNH.reshape(batch, key_BKCH.shape[1], -1, size)
        attended_BKGH = _attend(query_BKGH, key_BKCH, value_BKCH, group.mask_B11C, rule)
        return attended_BKGH.reshape(batch, heads, size)

    def _context(self, layer: int, work: Work, first: int) -> tuple[int, Tensor, Tensor]:
        """Keys and values from the page of token `first` to the chunk's end, and where they
        begin."""
        page_tokens = self._cache.page_tokens
        first_block = first // page_tokens
        start = first_block * page_tokens
        end = work.chunk.end
        pages = _pages_of(work, layer)[first_block : _blocks(end, page_tokens)]
        index_1M = torch.from_numpy(pages).to(self._device)[None]
        key_CKH = _gather(self._cache.key_PSKH, index_1M)[0, : end - start]
        value_CKH = _gather(self._cache.value_PSKH, index_1M)[0, : end - start]
        return start, key_CKH, value_CKH


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


def _blocks(tokens: int, page_tokens: int) -> int:
    return -(-tokens // page_tokens)


def _first_seen(position: int, window: int | None) -> int:
    """The first token that a row at `position` sees."""
    return 0 if window is None else max(0, position + 1 - window)


def _prefill(
    chunk: Chunk,
    first: int,
    query_TNH: Tensor,
    key_CKH: Tensor,
    value_CKH: Tensor,
    rule: AttentionRule,
) -> Tensor:
    """Row t sees the context, which begins at token `first`, up to and including itself."""
    mask_TC = None
    slides = rule.window is not None and rule.window < chunk.end
    if chunk.position > 0 or slides or rule.softcap is not None:
        context_C = torch.arange(first, chunk.end, device=query_TNH.device)
        rows_T1 = torch.arange(chunk.position, chunk.end, device=query_TNH.device)[:, None]
        mask_TC = context_C <= rows_T1
        if rule.window is not None:
            mask_TC &= context_C > rows_T1 - rule.window
    attended_NTH = _attend(
        query_TNH.transpose(0, 1)[None],
        key_CKH.transpose(0, 1)[None],
        value_CKH.transpose(0, 1)[None],
        mask_TC,
        rule,
    )[0]
    return attended_NTH.transpose(0, 1)


def _attend(
    query_BNTH: Tensor,
    key_BKCH: Tensor,
    value_BKCH: Tensor,
    mask: Tensor | None,
    rule: AttentionRule,
) -> Tensor:
    """Attended [B, N, T, H]; True in `mask` (broadcast to [B, N, T, C]) means seen, None means
    causal."""
    if rule.softcap is None:
        return functional.scaled_dot_product_attention(
            query_BNTH,
            key_BKCH,
            value_BKCH,
            attn_mask=mask,
            is_causal=mask is None,
            scale=rule.scale,
            enable_gqa=True,
        )
    groups = query_BNTH.shape[1] // key_BKCH.shape[1]
    key_BNCH = key_BKCH.repeat_interleave(groups, dim=1)
    scores_BNTC = query_BNTH @ key_BNCH.transpose(2, 3) * rule.scale
    scores_BNTC = torch.tanh(scores_BNTC / rule.softcap) * rule.softcap
    if mask is not None:
        scores_BNTC = scores_BNTC.masked_fill(~mask, float("-inf"))
    shares_BNTC = scores_BNTC.softmax(-1, dtype=torch.float32).to(query_BNTH.dtype)
    return shares_BNTC @ value_BKCH.repeat_interleave(groups, dim=1)
