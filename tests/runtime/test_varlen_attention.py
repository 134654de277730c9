"""Attention that follows pages, against attention that gathers them.

The kernel itself runs on GPUs alone. Here stands a plain one with its interface, so that what we
tell it of rows, pages, windows and slots is checked; `distance_from_gathered` holds the real one
against gathered pages when a stage starts.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from runtime.engine.attention import PagedAttention, Span
from runtime.engine.kv_cache import KvPools
from runtime.engine.pages import PageTable
from runtime.engine.varlen_attention import PageFollowing, distance_from_gathered, find_kernel
from runtime.models.decoder import AttentionRule

PAGE_TOKENS, KV_HEADS, HEADS, SIZE, LAYERS = 4, 2, 6, 8, 3


def plain_kernel(
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
) -> Tensor:
    """What the documentation of torch says of `varlen_attn` with a block table."""
    assert cu_seq_q.dtype == seqused_k.dtype == block_table.dtype == torch.int32
    assert cu_seq_k is None
    assert enable_gqa
    assert num_splits == 1
    attended = torch.empty_like(query)
    for row, used in enumerate(seqused_k.tolist()):
        start, stop = cu_seq_q[row : row + 2].tolist()
        assert stop - start <= max_q
        assert used <= max_k == block_table.shape[1] * key.shape[1]
        keys = key[block_table[row].long()].flatten(0, 1)[:used]
        values = value[block_table[row].long()].flatten(0, 1)[:used]
        groups = query.shape[1] // keys.shape[1]
        scores = torch.einsum(
            "tnh,cnh->ntc", query[start:stop], keys.repeat_interleave(groups, dim=1)
        )
        at = torch.arange(used - (stop - start), used)[:, None]
        seen = torch.arange(used) <= at + window_size[1]
        if window_size[0] >= 0:
            seen &= torch.arange(used) >= at - window_size[0]
        shares = (scores * scale).masked_fill(~seen, float("-inf")).softmax(-1)
        attended[start:stop] = torch.einsum(
            "ntc,cnh->tnh", shares, values.repeat_interleave(groups, dim=1)
        )
    return attended


def pools() -> KvPools:
    dice = torch.Generator().manual_seed(3)
    shape = (64, PAGE_TOKENS, KV_HEADS, SIZE)
    return KvPools(
        key_PSKH=torch.randn(shape, generator=dice), value_PSKH=torch.randn(shape, generator=dice)
    )


def spans() -> list[Span]:
    """Decodes and chunks of prompts, of requests that entered at layers of their own."""
    free = iter(np.random.default_rng(1).permutation(64).tolist())
    made = []
    for first, position, n_tokens in ((0, 0, 5), (1, 9, 1), (0, 6, 3), (2, 3, 1)):
        table = PageTable(num_layers=LAYERS - first)
        for _ in range(-(-(position + n_tokens) // PAGE_TOKENS)):
            table.append([next(free) for _ in range(LAYERS - first)])
        made.append(Span(position=position, n_tokens=n_tokens, first=first, table=table))
    return made


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_following_pages_gives_what_gathering_them_gives(
    window: int | None, softcap: float | None
) -> None:
    dice = torch.Generator().manual_seed(7)
    rows = [torch.randn((10, heads, SIZE), generator=dice) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    rule = AttentionRule(scale=0.3, window=window, softcap=softcap)
    followed, gathered = pools(), pools()
    found = PageFollowing(plain_kernel, spans(), followed, gather_tokens=16)(2, *rows, rule)
    expected = PagedAttention(spans(), gathered, gather_tokens=16)(2, *rows, rule)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(followed.key_PSKH, gathered.key_PSKH)
    torch.testing.assert_close(followed.value_PSKH, gathered.value_PSKH)


def test_a_kernel_that_sees_one_token_too_many_is_noticed_at_the_start() -> None:
    def too_wide(*tensors: Tensor, window_size: tuple[int, int], **rest: object) -> Tensor:
        return plain_kernel(*tensors, window_size=(window_size[0] + 1, 0), **rest)

    assert distance_from_gathered(plain_kernel, pools()) < 1e-4
    assert distance_from_gathered(too_wide, pools()) > 0.05


def test_on_a_processor_pages_are_gathered() -> None:
    assert find_kernel(pools()) is None
