"""The parts of a Llama layer as functions on tensors.

Legend: T tokens in the step, D hidden, I intermediate, N heads, K KV heads, H head size,
F = H/2 rotary frequencies. All tensors of one call share dtype and device unless said otherwise.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.config import ModelConfig


def rms_norm(hidden_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
    """Root-mean-square norm; computed in float32, returned in the dtype of the input."""
    wide_TD = hidden_TD.float()
    scale_T1 = torch.rsqrt(wide_TD.pow(2).mean(-1, keepdim=True) + eps)
    return weight_D * (wide_TD * scale_T1).to(hidden_TD.dtype)


def gated_mlp(hidden_TD: Tensor, gate_up_ID: Tensor, down_DI: Tensor) -> Tensor:
    """down(silu(gate(x)) * up(x)); `gate_up_ID` stacks gate over up (2 I rows)."""
    gate_TI, up_TI = functional.linear(hidden_TD, gate_up_ID).chunk(2, dim=-1)
    return functional.linear(functional.silu(gate_TI) * up_TI, down_DI)


def inverse_frequencies(config: ModelConfig, *, device: torch.device) -> Tensor:
    """Rotary frequencies [F] in radians per position, float32, with llama3 scaling if asked."""
    exponents_F = torch.arange(0, config.head_size, 2, dtype=torch.float32) / config.head_size
    frequencies_F = 1.0 / (config.rope_theta**exponents_F)
    scaling = config.rope_scaling
    if scaling is not None:
        context = scaling.original_max_position_embeddings
        wavelengths_F = 2 * math.pi / frequencies_F
        stretched_F = frequencies_F / scaling.factor
        smooth_F = (context / wavelengths_F - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        blended_F = (1 - smooth_F) * stretched_F + smooth_F * frequencies_F
        long_F = wavelengths_F > context / scaling.low_freq_factor
        short_F = wavelengths_F < context / scaling.high_freq_factor
        frequencies_F = torch.where(
            long_F, stretched_F, torch.where(short_F, frequencies_F, blended_F)
        )
    return frequencies_F.to(device)


def rotary_angles(
    positions_T: Tensor, frequencies_F: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin [T, H] for integer positions, computed in float32, returned in `dtype`."""
    angles_TF = positions_T.float()[:, None] * frequencies_F
    angles_TH = torch.cat((angles_TF, angles_TF), dim=-1)
    return angles_TH.cos().to(dtype), angles_TH.sin().to(dtype)


def rotate(heads_TNH: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
    """Rotary embedding of queries or keys: pairs are (i, i + H/2), as in Hugging Face weights."""
    low, high = heads_TNH.chunk(2, dim=-1)
    turned_TNH = torch.cat((-high, low), dim=-1)
    return heads_TNH * cos_TH[:, None, :] + turned_TNH * sin_TH[:, None, :]
