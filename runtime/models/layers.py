"""The parts of a layer as functions on tensors.

Legend: T tokens in the step, D hidden, I intermediate, N heads, K KV heads, H head size,
F = H/2 rotary frequencies. All tensors of one call share dtype and device unless said otherwise.
"""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.linear import linear


def rms_norm(hidden_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    """Root-mean-square norm; computed in float32, returned in the dtype of the input."""
    wide_TD = hidden_TD.float()
    scale_T1 = torch.rsqrt(wide_TD.pow(2).mean(-1, keepdim=True) + eps)
    return weight_D * (wide_TD * scale_T1).to(hidden_TD.dtype)


def gated_mlp(hidden_TD: Tensor, gate_up_ID: Tensor, down_DI: Tensor) -> Tensor:
    """down(silu(gate(x)) * up(x)); `gate_up_ID` stacks gate over up (2 I rows)."""
    gate_TI, up_TI = linear(hidden_TD, gate_up_ID).chunk(2, dim=-1)
    return linear(functional.silu(gate_TI) * up_TI, down_DI)


def rotary_angles(
    positions_T: Tensor, frequencies_F: Tensor, *, dtype: torch.dtype, amplitude: float
) -> tuple[Tensor, Tensor]:
    """cos and sin [T, H] times `amplitude` for integer positions, computed in float32, returned
    in `dtype`."""
    angles_TF = positions_T.float()[:, None] * frequencies_F
    angles_TH = torch.cat((angles_TF, angles_TF), dim=-1)
    return (angles_TH.cos() * amplitude).to(dtype), (angles_TH.sin() * amplitude).to(dtype)


def rotate(heads_TNH: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
    """Rotary embedding of queries or keys: pairs are (i, i + H/2), as in Hugging Face weights."""
    low, high = heads_TNH.chunk(2, dim=-1)
    turned_TNH = torch.cat((-high, low), dim=-1)
    return heads_TNH * cos_TH[:, None, :] + turned_TNH * sin_TH[:, None, :]
