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
from torch import Tensor
from torch.nn import functional

from runtime.engine.kv_cache import KvPools
from runtime.engine.pages import BlockTable
from runtime.models.compiled.library import DTYPES, MULTIPLE, Kernels, SpanRows, compiled_kernels
from runtime.models.decoder import AttentionRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`n_tokens` rows of one request from `position` on; `first` is its first layer here."""

    position: int
    n_tokens: int
    first: int
    table: BlockTable

    @property
    def end(self) -> int:
        return self.position + self.n_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodeGroup:
    """Single rows attended together, each over `blocks` pages from its own first one on."""

    rows_B: Tensor
    spans: tuple[Span, ...]
    first_blocks: tuple[int, ...]
    blocks: int
    mask_B11C: Tensor


class PagedAttention:
    """Attention of one step over paged keys and values; a `ModelRunner` makes one for each.

    Stores the keys and values of the rows in `spans` and attends over their whole contexts.

    One object serves all layers of a step that the same requests run. `gather_tokens` bounds the
    tokens gathered at once for decodes (one request is always gathered whole).
    """

    def __init__(self, spans: Items[Span], cache: KvPools, *, gather_tokens: int) -> None:
        self._cache = cache
        self._device = cache.key_PSKH.device
        self._spans = spans
        starts = np.cumsum([0, *(span.n_tokens for span in spans)]).tolist()
        self._prefills = [
            (start, span) for start, span in zip(starts, spans, strict=False) if span.n_tokens > 1
        ]
        self._decodes = [
            (start, span) for start, span in zip(starts, spans, strict=False) if span.n_tokens == 1
        ]
        self._gather_tokens = gather_tokens
        self._decode_groups: dict[int | None, list[_DecodeGroup]] = {}  # by window
        self._kernels = _kernels_for(cache)
        self._rows = SpanRows(
            rows=np.array(starts[:-1], dtype=np.int64),
            counts=np.array([span.n_tokens for span in spans], dtype=np.int64),
            positions=np.array([span.position for span in spans], dtype=np.int64),
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
        for start, span in self._prefills:
            rows = slice(start, start + span.n_tokens)
            first = _first_seen(span.position, rule.window)
            if span.position == 0:  # the context is these very rows
                key_CKH, value_CKH = key_TKH[rows], value_TKH[rows]
            else:
                first, key_CKH, value_CKH = self._context(layer, span, first)
            attended_TNH[rows] = _prefill(span, first, query_TNH[rows], key_CKH, value_CKH, rule)
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
            np.array(
                [span.table.address_of(layer - span.first) for span in self._spans], dtype=np.int64
            ),
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
            (row, span, _first_seen(span.position, window) // page_tokens)
            for row, span in self._decodes
        ]
        rest.sort(key=lambda each: _blocks(each[1].end, page_tokens) - each[2], reverse=True)
        while rest:
            blocks = _blocks(rest[0][1].end, page_tokens) - rest[0][2]
            size = max(1, self._gather_tokens // (blocks * page_tokens))
            members, rest = rest[:size], rest[size:]
            first_blocks = tuple(first_block for _, _, first_block in members)
            ends_B1 = torch.tensor([[span.end] for _, span, _ in members], device=self._device)
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
                    spans=tuple(span for _, span, _ in members),
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
        pages_BM = np.empty((len(group.spans), group.blocks), dtype=np.int64)
        for row, (span, first) in enumerate(zip(group.spans, group.first_blocks, strict=True)):
            pages = span.table.pages_LB[layer - span.first, first:]
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

    def _context(self, layer: int, span: Span, first: int) -> tuple[int, Tensor, Tensor]:
        """Keys and values from the page of token `first` to the span's end, and where they
        begin."""
        page_tokens = self._cache.page_tokens
        first_block = first // page_tokens
        start = first_block * page_tokens
        pages = span.table.pages_LB[
            layer - span.first, first_block : _blocks(span.end, page_tokens)
        ]
        index_1M = torch.from_numpy(pages).to(self._device)[None]
        key_CKH = _gather(self._cache.key_PSKH, index_1M)[0, : span.end - start]
        value_CKH = _gather(self._cache.value_PSKH, index_1M)[0, : span.end - start]
        return start, key_CKH, value_CKH


def _kernels_for(cache: KvPools) -> Kernels | None:
    """The compiled ones, where they can run over these pages."""
    pool_PSKH = cache.key_PSKH
    if pool_PSKH.device.type != "cpu" or pool_PSKH.dtype not in DTYPES:
        return None
    return compiled_kernels() if pool_PSKH.shape[-1] % MULTIPLE == 0 else None


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
    span: Span,
    first: int,
    query_TNH: Tensor,
    key_CKH: Tensor,
    value_CKH: Tensor,
    rule: AttentionRule,
) -> Tensor:
    """Row t sees the context, which begins at token `first`, up to and including itself."""
    mask_TC = None
    slides = rule.window is not None and rule.window < span.end
    if span.position > 0 or slides or rule.softcap is not None:
        context_C = torch.arange(first, span.end, device=query_TNH.device)
        rows_T1 = torch.arange(span.position, span.end, device=query_TNH.device)[:, None]
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
