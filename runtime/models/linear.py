"""Rows times a weight matrix.

On CPUs the compiled product (`compiled`) reads half-precision weights once a step and as narrow as
they are stored, and sums every output in one order: it depends neither on the number of rows, nor
on the number of threads, nor on the instruction set. torch chooses its kernels, and with them the
order of the sums, by the number of rows. HELIX_CPU_PRODUCTS says whether torch's may be used.

Where the kernels were not built, torch multiplies float32; half precision that the CPU lacks
instructions for is widened to float32 a block of weights at a time.

Legend: T rows, D inputs, E outputs.
"""

import functools
import os
import time
from collections.abc import Callable
from enum import StrEnum

import torch
from torch import Tensor
from torch.nn import functional

from runtime.models.compiled.library import DTYPES, Kernels, compiled_kernels

VARIABLE = "HELIX_CPU_PRODUCTS"
_FEW_ROWS = 2  # up to here reading the weights costs more than multiplying row by row
_BLOCK_ELEMENTS = 2**19  # 2 MiB in float32: half a cache of today
_MEASURED_PRODUCTS = 2**26  # some milliseconds of one core
_MEASUREMENTS = 3


class CpuProducts(StrEnum):
    """Which kernels multiply on CPUs: those whose results are the same for any number of rows,
    or for each number of rows those that took least time in a short measurement."""

    REPRODUCIBLE = "reproducible"
    FASTEST = "fastest"


class UnknownProducts(ValueError):
    """HELIX_CPU_PRODUCTS is neither of CpuProducts; the message names the value and the choices."""


@functools.cache
def cpu_products() -> CpuProducts:
    """What HELIX_CPU_PRODUCTS says. Raises UnknownProducts.

    Without it: reproducible where that costs 5 % at most for any number of rows. Products of
    bfloat16 by AVX512-BF16 or AMX cost more, so CPUs that have either get the fastest: two machines
    of one kind decide alike, unlike by a measurement.
    """
    value = os.environ.get(VARIABLE, "").strip().lower()
    if not value:
        costs_more = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return CpuProducts.FASTEST if costs_more else CpuProducts.REPRODUCIBLE
    try:
        return CpuProducts(value)
    except ValueError:
        choices = " or ".join(repr(str(choice)) for choice in CpuProducts)
        raise UnknownProducts(
            f"{VARIABLE} is {value!r}; set it to {choices}, or unset it"
        ) from None


def linear(rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None = None) -> Tensor:
    """rows [T, D] times weight [E, D] transposed, plus bias [E] -> [T, E], dtype of the rows."""
    if rows_TD.device.type != "cpu" or rows_TD.requires_grad:
        return functional.linear(rows_TD, weight_ED, bias_E)
    kernels = compiled_kernels()
    if kernels is None or rows_TD.dtype not in DTYPES or not weight_ED.is_contiguous():
        return _by_torch(rows_TD, weight_ED, bias_E)
    if cpu_products() is CpuProducts.FASTEST and len(rows_TD) > 0:
        size = 1 << (len(rows_TD) - 1).bit_length()
        if _torch_is_faster(kernels, size, weight_ED.shape, weight_ED.dtype):
            return _by_torch(rows_TD, weight_ED, bias_E)
    return kernels.multiply(rows_TD, weight_ED, bias_E)


def _by_torch(rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
    if _torch_has_instructions(rows_TD.dtype) or len(rows_TD) <= _FEW_ROWS:
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
def _torch_has_instructions(dtype: torch.dtype) -> bool:
    """Whether this CPU has instructions for products in `dtype`, and torch uses them.

    torch counts AVX-512 as such for bf16, though without AVX512-BF16 it widens at each product.
    """
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return True


@functools.cache
def _torch_is_faster(
    kernels: Kernels, num_rows: int, shape_ED: torch.Size, dtype: torch.dtype
) -> bool:
    """Whether torch takes less time than the kernels for up to `num_rows` rows.

    Measured with as many of the outputs as take some milliseconds.
    """
    outputs, inputs = shape_ED
    outputs = max(1, min(outputs, _MEASURED_PRODUCTS // (num_rows * inputs)))
    rows_TD = torch.ones(num_rows, inputs, dtype=dtype)
    weight_ED = torch.ones(outputs, inputs, dtype=dtype)
    ours_s = _shortest_s(lambda: kernels.multiply(rows_TD, weight_ED, None))
    torch_s = _shortest_s(lambda: _by_torch(rows_TD, weight_ED, None))
    return torch_s < ours_s


def _shortest_s(multiply: Callable[[], Tensor]) -> float:
    multiply()
    times = []
    for _ in range(_MEASUREMENTS):
        start = time.perf_counter()
        multiply()
        times.append(time.perf_counter() - start)
    return min(times)
