"""Attention of a step straight over the pages, by torch's varlen kernel; on GPUs that have it.

Nothing is gathered: the kernel follows each request's table of pages. Decodes and chunks of prompts
go through it alike. One split of the keys per row, so that what a request gets depends on neither
batch nor node.

Legend: T rows of the step that run the layer, B requests, M pages of the longest of them, S tokens
per page, N heads, K KV heads, H head size.
"""

import functools
import importlib.util
import logging
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from runtime.engine.attention import PagedAttention, Span
from runtime.engine.kv_cache import KvPools
from runtime.engine.pages import PageTable
from runtime.models.decoder import Attend, AttentionRule

logger = logging.getLogger(__name__)

_TRIED_TOLERANCE = 0.05  # half precision: a wrong mask or head is off by far more


class Kernel(Protocol):
    """What is used of `torch.nn.attention.varlen.varlen_attn`."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: None,
        max_q: int,
        max_k: int,
        *,
        scale: float,
        window_size: tuple[int, int],
        enable_gqa: bool,
        seqused_k: Tensor,
        block_table: Tensor,
        num_splits: int,
    ) -> Any: ...


def find_kernel(pools: KvPools) -> Kernel | None:
    """torch's kernel where it runs and gives what gathered pages give; else why not is logged."""
    if pools.key_PSKH.device.type != "cuda":
        return None  # it is for GPUs alone
    kernel, why_not = _tried_kernel(pools)
    if kernel is None:
        logger.warning("attention gathers pages, which is slower: %s", why_not)
    else:
        logger.info("attention follows pages by torch's varlen kernel")
    return kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTables:
    """Where the rows of a step are and what they see, on the device, for all its layers.

    `pages_LBM` by layer, from the first that any of the requests runs here on.
    """

    starts_B1: Tensor  # int32, B + 1: rows of request b are [starts[b], starts[b + 1])
    ends_B: Tensor  # int32, tokens of its context
    most_rows: int
    most_tokens: int
    first_layer: int
    pages_LBM: Tensor  # int32
    slots_LT: Tensor  # int64, where each row's key and value are written


class VarlenAttention:
    """Implements `Attend` for rules without a softcap."""

    def __init__(self, kernel: Kernel, tables: StepTables, cache: KvPools) -> None:
        self._kernel = kernel
        self._tables = tables
        self._cache = cache

    def __call__(
        self,
        layer: int,
        query_TNH: Tensor,
        key_TKH: Tensor,
        value_TKH: Tensor,
        rule: AttentionRule,
        /,
    ) -> Tensor:
        """Attended rows [T, N, H]."""
        tables, cache = self._tables, self._cache
        index = layer - tables.first_layer
        slots_T = tables.slots_LT[index]
        cache.key_PSKH.flatten(0, 1).index_copy_(0, slots_T, key_TKH)
        cache.value_PSKH.flatten(0, 1).index_copy_(0, slots_T, value_TKH)
        attended: Tensor = self._kernel(
            query_TNH,
            cache.key_PSKH,
            cache.value_PSKH,
            tables.starts_B1,
            None,
            tables.most_rows,
            tables.most_tokens,
            scale=rule.scale,
            window_size=(-1 if rule.window is None else rule.window - 1, 0),
            enable_gqa=True,
            seqused_k=tables.ends_B,
            block_table=tables.pages_LBM[index],
            num_splits=1,
        )
        return attended


def make_tables(spans: Items[Span], cache: KvPools) -> StepTables:
    """Built once for a step and copied to the device in one go for each table.

    All of `spans` run the same layers, so their tables end with the same one; they may begin at
    layers of their own.
    """
    page_tokens, device = cache.page_tokens, cache.key_PSKH.device
    first = max(span.first for span in spans)
    layers = min(len(span.table.pages_LB) - (first - span.first) for span in spans)
    blocks = max(-(-span.end // page_tokens) for span in spans)
    pages_LBM = np.zeros((layers, len(spans), blocks), dtype=np.int32)
    slots = []
    for row, span in enumerate(spans):
        held_LM = span.table.pages_LB[first - span.first :][:layers]
        used = min(held_LM.shape[1], blocks)
        pages_LBM[:, row, :used] = held_LM[:, :used]
        positions = np.arange(span.position, span.end)
        slots.append(held_LM[:, positions // page_tokens] * page_tokens + positions % page_tokens)
    starts = np.cumsum([0, *(span.n_tokens for span in spans)], dtype=np.int32)
    return StepTables(
        starts_B1=torch.from_numpy(starts).to(device),
        ends_B=torch.tensor([span.end for span in spans], dtype=torch.int32, device=device),
        most_rows=max(span.n_tokens for span in spans),
        most_tokens=blocks * page_tokens,
        first_layer=first,
        pages_LBM=torch.from_numpy(pages_LBM).to(device),
        slots_LT=torch.from_numpy(np.concatenate(slots, axis=1)).to(device),
    )


class PageFollowing:
    """Implements `Attend`: the kernel cannot bend scores (softcap), so such layers gather."""

    def __init__(
        self, kernel: Kernel, spans: Items[Span], cache: KvPools, *, gather_tokens: int
    ) -> None:
        self._follow = VarlenAttention(kernel, make_tables(spans, cache), cache)
        self._gather = PagedAttention(spans, cache, gather_tokens=gather_tokens)

    def __call__(
        self,
        layer: int,
        query_TNH: Tensor,
        key_TKH: Tensor,
        value_TKH: Tensor,
        rule: AttentionRule,
        /,
    ) -> Tensor:
        attend: Attend = self._follow if rule.softcap is None else self._gather
        return attend(layer, query_TNH, key_TKH, value_TKH, rule)


def _tried_kernel(pools: KvPools) -> tuple[Kernel | None, str]:
    """The kernel, tried on a small pool of the same pages and heads; else why there is none."""
    if importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return None, f"torch {torch.__version__} has no varlen attention; install torch 2.13"
    from torch.nn.attention.varlen import varlen_attn

    try:
        apart = distance_from_gathered(varlen_attn, pools)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        said = str(error).splitlines() or [type(error).__name__]
        return None, f"torch's varlen kernel does not run here: {said[0]}"
    if not apart < _TRIED_TOLERANCE:
        return None, f"torch's varlen kernel is {apart:.3f} off what gathered pages give here"
    return varlen_attn, ""


def distance_from_gathered(kernel: Kernel, like: KvPools) -> float:
    """Largest difference to `PagedAttention` on random rows: a prompt's chunk and a decode, with
    a window and without, in pages and heads like those of `like`."""
    _, page_tokens, kv_heads, size = like.key_PSKH.shape
    device, dtype = like.key_PSKH.device, like.key_PSKH.dtype
    dice = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice).to(device, dtype)

    pools = [random(6, page_tokens, kv_heads, size) for _ in "kv"]
    spans = []
    for pages, position, n_tokens in (([4, 1, 3], page_tokens + 2, 3), ([5, 0], page_tokens, 1)):
        table = PageTable(num_layers=1)
        for page in pages:
            table.append([page])
        spans.append(Span(position=position, n_tokens=n_tokens, first=0, table=table))
    rows = (random(4, 2 * kv_heads, size), random(4, kv_heads, size), random(4, kv_heads, size))
    apart = 0.0
    for window in (None, page_tokens // 2 + 1):
        rule = AttentionRule(scale=size**-0.5, window=window)
        found = []
        for make in (functools.partial(PageFollowing, kernel), PagedAttention):
            tried = KvPools(key_PSKH=pools[0].clone(), value_PSKH=pools[1].clone())
            attend = make(spans, tried, gather_tokens=4 * page_tokens)
            found.append(attend(0, *rows, rule).float())
        apart = max(apart, float((found[0] - found[1]).abs().max()))
    return apart
