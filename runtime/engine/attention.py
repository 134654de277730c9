"""Attention of a ragged step over paged keys and values: gather pages, then SDPA.

Legend: T rows of the step that run the layer, B decoding requests, M pages of the longest of
them, C context tokens, S tokens per page, P pages, N heads, K KV heads, G = N/K, H head size.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from runtime.engine.kv_cache import KvCache, PageTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`n_tokens` rows of one request from `position` on; `first` is its first layer here."""

    position: int
    n_tokens: int
    first: int
    table: PageTable

    @property
    def end(self) -> int:
        return self.position + self.n_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodeGroup:
    """Single rows attended together, padded to the longest context."""

    rows_B: Tensor
    spans: tuple[Span, ...]
    blocks: int
    mask_B11C: Tensor


class PagedAttention:
    """Stores the keys and values of the rows in `spans` and attends over their whole contexts.

    One object serves all layers of a step that the same requests run. `gather_tokens` bounds the
    tokens gathered at once for decodes (one request is always gathered whole).
    """

    def __init__(self, spans: Items[Span], cache: KvCache, *, gather_tokens: int) -> None:
        self._cache = cache
        self._device = cache.key_PSKH.device
        self._spans = spans
        starts = np.cumsum([0, *(span.n_tokens for span in spans)]).tolist()
        self._prefills = [
            (start, span) for start, span in zip(starts, spans, strict=False) if span.n_tokens > 1
        ]
        decodes = [
            (start, span) for start, span in zip(starts, spans, strict=False) if span.n_tokens == 1
        ]
        self._decode_groups = self._group(decodes, gather_tokens)

    def __call__(self, layer: int, query_TNH: Tensor, key_TKH: Tensor, value_TKH: Tensor) -> Tensor:
        """Attended rows [T, N, H]; an `Attend` of the decoder."""
        self._store(layer, key_TKH, value_TKH)
        attended_TNH = torch.empty_like(query_TNH)
        for group in self._decode_groups:
            attended_TNH[group.rows_B] = self._decode(layer, group, query_TNH[group.rows_B])
        for start, span in self._prefills:
            rows = slice(start, start + span.n_tokens)
            if span.position == 0:  # the context is these very rows
                key_CKH, value_CKH = key_TKH[rows], value_TKH[rows]
            else:
                key_CKH, value_CKH = self._context(layer, span)
            attended_TNH[rows] = _prefill(span, query_TNH[rows], key_CKH, value_CKH)
        return attended_TNH

    def _store(self, layer: int, key_TKH: Tensor, value_TKH: Tensor) -> None:
        page_tokens = self._cache.page_tokens
        slots = []
        for span in self._spans:
            positions = np.arange(span.position, span.end)
            pages = span.table.pages_LB[layer - span.first, positions // page_tokens]
            slots.append(pages * page_tokens + positions % page_tokens)
        slots_T = torch.from_numpy(np.concatenate(slots)).to(self._device)
        self._cache.key_PSKH.flatten(0, 1)[slots_T] = key_TKH
        self._cache.value_PSKH.flatten(0, 1)[slots_T] = value_TKH

    def _group(self, decodes: Items[tuple[int, Span]], gather_tokens: int) -> list[_DecodeGroup]:
        """Longest first, so that requests of like length share a group and little is padding."""
        page_tokens = self._cache.page_tokens
        groups = []
        rest = sorted(decodes, key=lambda row_span: row_span[1].end, reverse=True)
        while rest:
            blocks = -(-rest[0][1].end // page_tokens)
            size = max(1, gather_tokens // (blocks * page_tokens))
            members, rest = rest[:size], rest[size:]
            ends_B = torch.tensor([span.end for _, span in members], device=self._device)
            context_C = torch.arange(blocks * page_tokens, device=self._device)
            groups.append(
                _DecodeGroup(
                    rows_B=torch.tensor([row for row, _ in members], device=self._device),
                    spans=tuple(span for _, span in members),
                    blocks=blocks,
                    mask_B11C=(context_C < ends_B[:, None])[:, None, None, :],
                )
            )
        return groups

    def _decode(self, layer: int, group: _DecodeGroup, query_BNH: Tensor) -> Tensor:
        pages_BM = np.empty((len(group.spans), group.blocks), dtype=np.int64)
        for row, span in enumerate(group.spans):
            pages = span.table.pages_LB[layer - span.first]
            blocks = min(len(pages), group.blocks)
            pages_BM[row, :blocks] = pages[:blocks]
            pages_BM[row, blocks:] = pages[0]  # masked, and never a page of another request
        index_BM = torch.from_numpy(pages_BM).to(self._device)
        key_BKCH = self._cache.key_PSKH[index_BM].flatten(1, 2).transpose(1, 2)
        value_BKCH = self._cache.value_PSKH[index_BM].flatten(1, 2).transpose(1, 2)
        # the G heads that share a KV head stand where SDPA expects query positions
        batch, heads, size = query_BNH.shape
        query_BKGH = query_BNH.reshape(batch, key_BKCH.shape[1], -1, size)
        attended_BKGH = functional.scaled_dot_product_attention(
            query_BKGH, key_BKCH, value_BKCH, attn_mask=group.mask_B11C
        )
        return attended_BKGH.reshape(batch, heads, size)

    def _context(self, layer: int, span: Span) -> tuple[Tensor, Tensor]:
        blocks = -(-span.end // self._cache.page_tokens)
        pages = span.table.pages_LB[layer - span.first, :blocks]
        index_M = torch.from_numpy(pages).to(self._device)
        key_CKH = self._cache.key_PSKH[index_M].flatten(0, 1)[: span.end]
        value_CKH = self._cache.value_PSKH[index_M].flatten(0, 1)[: span.end]
        return key_CKH, value_CKH


def _prefill(span: Span, query_TNH: Tensor, key_CKH: Tensor, value_CKH: Tensor) -> Tensor:
    """Row t sees the context up to and including itself."""
    mask_TC = None
    if span.position > 0:
        context_C = torch.arange(span.end, device=query_TNH.device)
        rows_T = torch.arange(span.position, span.end, device=query_TNH.device)
        mask_TC = context_C <= rows_T[:, None]
    attended_NTH = functional.scaled_dot_product_attention(
        query_TNH.transpose(0, 1)[None],
        key_CKH.transpose(0, 1)[None],
        value_CKH.transpose(0, 1)[None],
        attn_mask=mask_TC,
        is_causal=mask_TC is None,
        enable_gqa=True,
    )[0]
    return attended_NTH.transpose(0, 1)
