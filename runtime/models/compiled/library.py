"""Loads the product where the package was built with a C compiler and the CPU has AVX2.

Legend: T rows, D inputs, E outputs.
"""

import ctypes
import functools
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch
from torch import Tensor

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]

INPUTS_MULTIPLE = 8  # of what is taken at once along the inputs
_LIBRARY_NAME = "_product"
_EDITION = 1  # of product.c
_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_I64, _POINTER = ctypes.c_int64, ctypes.c_void_p


@functools.cache
def compiled_product() -> Product | None:
    """The product of rows [T, D] and weights [E, D] transposed, plus bias [E] -> [T, E].

    All on the CPU and of one dtype, float32, bfloat16 or float16, D a multiple of
    INPUTS_MULTIPLE, the weights contiguous. Summed in float32 and rounded once; an output depends
    neither on the other rows nor on the number of threads, which is torch's. None where it was
    not built, or built from another source, or the CPU cannot run it.
    """
    library = _library()
    if library is None:
        return None

    def product(rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
        rows_TD = rows_TD.contiguous()
        (rows, inputs), outputs = rows_TD.shape, len(weight_ED)
        wide_TD = torch.empty(rows, inputs, dtype=torch.float32)
        product_TE = torch.empty(rows, outputs, dtype=rows_TD.dtype)
        library.multiply(
            _KINDS[rows_TD.dtype],
            torch.get_num_threads(),
            rows,
            inputs,
            outputs,
            rows_TD.data_ptr(),
            weight_ED.data_ptr(),
            None if bias_E is None else bias_E.data_ptr(),
            wide_TD.data_ptr(),
            product_TE.data_ptr(),
        )
        return product_TE

    return product


def _library() -> ctypes.CDLL | None:
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(_LIBRARY_NAME + suffix)
        if path.exists():
            break
    else:
        return None
    library = ctypes.CDLL(str(path))
    try:
        edition = _I64.in_dll(library, "product_edition").value
    except ValueError:
        return None
    library.product_is_supported.restype = _I64
    if edition != _EDITION or not library.product_is_supported():
        return None
    library.multiply.restype = None
    library.multiply.argtypes = [*(_I64,) * 5, *(_POINTER,) * 5]
    return library
