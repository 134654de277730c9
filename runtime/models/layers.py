"""The parts of a layer as functions on tensors.

Legend: T tokens in the step, D hidden, I intermediate, N heads, K KV heads, H head size,
F = H/2 rotary frequencies. All tensors of one call share dtype and device unless said otherwise.
"""

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.compiled.library import DTYPES, MULTIPLE, Kernels, compiled_kernels
from runtime.models.linear import linear


def rms_norm(hidden_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    """Root-mean-square norm; computed in float32, returned in the dtype of the input."""
    kernels = _kernels_for(hidden_TD, weight_D)
    if kernels is not None and hidden_TD.dim() == 2 and hidden_TD.shape[1] % MULTIPLE == 0:
        return kernels.rms_norm(hidden_TD.contiguous(), weight_D, eps=eps)
    wide_TD = hidden_TD.float()
    scale_T1 = torch.rsqrt(wide_TD.pow(2).mean(-1, keepdim=True) + eps)
    return weight_D * (wide_TD * scale_T1).to(hidden_TD.dtype)


def gated_mlp(hidden_TD: Tensor, gate_up_ID: Tensor, down_DI: Tensor) -> Tensor:
    """down(silu(gate(x)) * up(x)); `gate_up_ID` stacks gate over up (2 I rows)."""
    gate_up_TI = linear(hidden_TD, gate_up_ID)
    kernels = _kernels_for(gate_up_TI)
    if kernels is not None and gate_up_TI.shape[1] % (2 * MULTIPLE) == 0:
        return linear(kernels.silu_gate(gate_up_TI.contiguous()), down_DI)
    gate_TI, up_TI = gate_up_TI.chunk(2, dim=-1)
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
    kernels = _kernels_for(heads_TNH, cos_TH, sin_TH)
    size = heads_TNH.shape[2]
    is_row_contiguous = heads_TNH.stride()[1:] == (size, 1)
    if kernels is not None and is_row_contiguous and size % (2 * MULTIPLE) == 0:
        return kernels.rotate(heads_TNH, cos_TH.contiguous(), sin_TH.contiguous())
    low, high = heads_TNH.chunk(2, dim=-1)
    turned_TNH = torch.cat((-high, low), dim=-1)
    return heads_TNH * cos_TH[:, None, :] + turned_TNH * sin_TH[:, None, :]


def _kernels_for(*tensors: Tensor) -> Kernels | None:
    """Our loops, where they can run on these: on the CPU, of one dtype, without gradients."""
    first = tensors[0]
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.requires_grad or tensor.dtype != first.dtype:
            return None
    return compiled_kernels() if first.dtype in DTYPES else None
