"""Attention without a cache, for one request run from its first token in one go: what paged
attention must equal. For checks, not for serving.

Legend: T tokens, N heads, K KV heads, H head size.
"""

import torch
from torch import Tensor

from runtime.models.decoder import AttentionRule


def attend_densely(
    _layer: int, query_TNH: Tensor, key_TKH: Tensor, value_TKH: Tensor, rule: AttentionRule, /
) -> Tensor:
    """Attended rows [T, N, H], in the dtype of the query; an `Attend`."""
    groups = query_TNH.shape[1] // key_TKH.shape[1]
    key_TNH, value_TNH = (each.repeat_interleave(groups, 1) for each in (key_TKH, value_TKH))
    scores_NTT = torch.einsum("tnh,snh->nts", query_TNH, key_TNH) * rule.scale
    if rule.softcap is not None:
        scores_NTT = torch.tanh(scores_NTT / rule.softcap) * rule.softcap
    rows_T = torch.arange(len(query_TNH), device=query_TNH.device)
    age_TT = rows_T[:, None] - rows_T
    seen_TT = (age_TT >= 0) if rule.window is None else (age_TT >= 0) & (age_TT < rule.window)
    shares_NTT = scores_NTT.masked_fill(~seen_TT, float("-inf")).softmax(-1, dtype=torch.float32)
    return torch.einsum("nts,snh->tnh", shares_NTT.to(query_TNH.dtype), value_TNH)
