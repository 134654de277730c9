"""Attention over keys and values that lie side by side, by torch.

Legend: B requests, T rows of each, C context tokens, N heads, K KV heads, G = N/K, H head size.
"""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.decoder import AttentionRule


def attend_densely(
    _layer: int, query_TNH: Tensor, key_TKH: Tensor, value_TKH: Tensor, rule: AttentionRule, /
) -> Tensor:
    """Attended rows [T, N, H] of one request that is run from its first token in one go.

    An `Attend` without a cache: what paged attention must equal. For checks, not for serving.
    """
    rows_T = torch.arange(len(query_TNH), device=query_TNH.device)
    age_TT = rows_T[:, None] - rows_T
    seen_TT = (age_TT >= 0) if rule.window is None else (age_TT >= 0) & (age_TT < rule.window)
    query_1NTH, key_1KTH, value_1KTH = (
        each.transpose(0, 1)[None] for each in (query_TNH, key_TKH, value_TKH)
    )
    return attend(query_1NTH, key_1KTH, value_1KTH, seen_TT, rule)[0].transpose(0, 1)


def attend(
    query_BNTH: Tensor,
    key_BKCH: Tensor,
    value_BKCH: Tensor,
    mask: Tensor,
    rule: AttentionRule,
) -> Tensor:
    """Attended [B, N, T, H]; True in `mask` (broadcast to [B, N, T, C]) means seen."""
    shape, kv_heads = query_BNTH.shape, key_BKCH.shape[1]
    if shape[2] == 1:  # the G heads that share a KV head stand where SDPA expects rows
        query_BNTH = query_BNTH.reshape(shape[0], kv_heads, -1, shape[3])
    if rule.softcap is None:
        attended_BNTH = functional.scaled_dot_product_attention(
            query_BNTH,
            key_BKCH,
            value_BKCH,
            attn_mask=mask,
            scale=rule.scale,
            enable_gqa=True,
        )
        return attended_BNTH.reshape(shape)
    groups = query_BNTH.shape[1] // kv_heads
    key_BNCH = key_BKCH.repeat_interleave(groups, dim=1)
    scores_BNTC = query_BNTH @ key_BNCH.transpose(2, 3) * rule.scale
    scores_BNTC = torch.tanh(scores_BNTC / rule.softcap) * rule.softcap
    scores_BNTC = scores_BNTC.masked_fill(~mask, float("-inf"))
    shares_BNTC = scores_BNTC.softmax(-1, dtype=torch.float32).to(query_BNTH.dtype)
    return (shares_BNTC @ value_BKCH.repeat_interleave(groups, dim=1)).reshape(shape)
