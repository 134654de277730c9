"""Rows times a weight matrix, as fast as the CPU can where torch is not.

Without AVX-512 or AMX torch multiplies bf16 and fp16 one row after another, so a step costs as many
passes over the weights as it has rows. Our own product (`compiled`) widens weights in registers:
one pass, as narrow as they are stored, and an output depends on no other row of the step. Where it
was not built, a block of weights that stays in the cache is widened and multiplied in float32.

Legend: T rows, D inputs, E outputs.
"""

import functools

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.compiled.library import MULTIPLE, compiled_kernels

_FEW_ROWS = 2  # up to here reading the weights costs more than multiplying row by row
_BLOCK_ELEMENTS = 2**19  # 2 MiB in float32: half a cache of today


def linear(rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """rows [T, D] times weight [E, D] transposed, plus bias [E] -> [T, E], dtype of the rows."""
    if rows_TD.device.type != "cpu" or rows_TD.requires_grad or _torch_is_fast(rows_TD.dtype):
        return functional.linear(rows_TD, weight_ED, bias_E)
    kernels = compiled_kernels()
    if kernels is not None and rows_TD.shape[1] % MULTIPLE == 0:
        return kernels.multiply(rows_TD, weight_ED, bias_E)
    if rows_TD.dtype == torch.float32 or len(rows_TD) <= _FEW_ROWS:
        return functional.linear(rows_TD, weight_ED, bias_E)
    return _widened(rows_TD, weight_ED, bias_E)


def _widened(rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    """Multiplied and summed in float32, rounded once."""
    outputs, inputs = weight_ED.shape
    block = min(outputs, max(1, _BLOCK_ELEMENTS // inputs))
    wide_BD = torch.empty(block, inputs)
    wide_TD = rows_TD.float()
    product_TE = torch.empty(len(rows_TD), outputs, dtype=rows_TD.dtype)
    for start in range(0, outputs, block):
        stop = min(start + block, outputs)
        part_BD = wide_BD[: stop - start].copy_(weight_ED[start:stop])
        part_B = None if bias_E is None else bias_E[start:stop].float()
        product_TE[:, start:stop] = functional.linear(wide_TD, part_BD, part_B)
    return product_TE


@functools.cache
def _torch_is_fast(dtype: torch.dtype) -> bool:
    """Whether torch's product in `dtype` is as fast as this CPU for few rows and for many.

    That of half precision is only where the CPU has instructions for it; that of float32 falls
    behind below some 64 rows where the widest registers are AVX2's.
    """
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return dtype != torch.float32 or torch.backends.cpu.get_cpu_capability() != "AVX2"
