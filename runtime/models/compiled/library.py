"""Loads the kernels where the package was built with a C compiler and the CPU has AVX2.

Legend: T rows, D inputs, E outputs, B requests, P pages, S tokens per page, N heads, K KV heads,
H head size. All tensors of a call are on the CPU and of one dtype of DTYPES; sums are in float32,
rounded once. Neither other rows or requests nor the number of threads, which is torch's, change
what a row gets.
"""

import ctypes
import functools
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MULTIPLE = 8  # inputs and head sizes the kernels can run are multiples of this
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_BLOCK = 16  # inputs a product takes at a time
_LIBRARY_NAME = "_kernels"
_EDITION = 4  # of module.c
_I64, _FLOAT, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRows:
    """Rows of B requests: `counts` of each from `rows` of the step on, the first of them at
    `positions` of its sequence."""

    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    positions: NDArray[np.int64]


class _Rows(ctypes.Structure):
    _fields_ = [
        *(
            (name, _I64)
            for name in ("kind", "spans", "heads", "kv_heads", "head_size", "page_tokens")
        ),
        *((name, _I64) for name in ("longest", "window")),
        *((name, _I64) for name in ("query_stride", "key_stride", "value_stride")),
        *((name, _FLOAT) for name in ("scale", "softcap")),
        *((name, _POINTER) for name in ("rows", "counts", "positions", "tables")),
        *((name, _POINTER) for name in ("query", "key", "value", "key_pages", "value_pages")),
        *((name, _POINTER) for name in ("attended", "failed")),
    ]


class Kernels:
    """The loaded library; see `compiled_kernels`."""

    def __init__(self, library: ctypes.CDLL, *, instructions: int) -> None:
        self._library = library
        self._instructions = instructions

    def narrower(self) -> list["Kernels"]:
        """These kernels by each instruction set that the CPU has, the narrowest first."""
        return [Kernels(self._library, instructions=each) for each in range(self._instructions + 1)]

    def multiply(self, rows_TD: Tensor, weight_ED: Tensor, bias_E: Tensor | None) -> Tensor:
        """rows [T, D] times weights [E, D] transposed, plus bias [E] -> [T, E].

        The weights are contiguous.
        """
        rows_TD = rows_TD.contiguous()
        (rows, inputs), outputs = rows_TD.shape, len(weight_ED)
        room_TD = torch.empty(rows, -(-inputs // _BLOCK) * _BLOCK, dtype=torch.float32)
        product_TE = torch.empty(rows, outputs, dtype=rows_TD.dtype)
        self._library.multiply(
            DTYPES.index(rows_TD.dtype),
            self._instructions,
            torch.get_num_threads(),
            rows,
            inputs,
            outputs,
            rows_TD.data_ptr(),
            weight_ED.data_ptr(),
            None if bias_E is None else bias_E.data_ptr(),
            room_TD.data_ptr(),
            product_TE.data_ptr(),
        )
        return product_TE

    def rms_norm(self, rows_TD: Tensor, weight_D: Tensor, *, eps: float) -> Tensor:
        """Each row by its root mean square, times the weight [D]; rounded before that too.

        D is a multiple of MULTIPLE; both are contiguous.
        """
        normed_TD = torch.empty_like(rows_TD)
        self._library.rms_norm(
            DTYPES.index(rows_TD.dtype),
            torch.get_num_threads(),
            *rows_TD.shape,
            eps,
            rows_TD.data_ptr(),
            weight_D.data_ptr(),
            normed_TD.data_ptr(),
        )
        return normed_TD

    def silu_gate(self, gate_up_TI: Tensor) -> Tensor:
        """silu(gate) * up of rows that hold the one behind the other -> [T, I/2], contiguous.

        I/2 is a multiple of MULTIPLE.
        """
        rows, both = gate_up_TI.shape
        product = torch.empty(rows, both // 2, dtype=gate_up_TI.dtype)
        self._library.silu_gate(
            DTYPES.index(gate_up_TI.dtype),
            torch.get_num_threads(),
            rows,
            both // 2,
            gate_up_TI.data_ptr(),
            product.data_ptr(),
        )
        return product

    def rotate(self, heads_TNH: Tensor, cos_TH: Tensor, sin_TH: Tensor) -> Tensor:
        """Rotary embedding, pairs (i, i + H/2) -> [T, N, H], contiguous.

        H is a multiple of 2 MULTIPLE; each row of heads is contiguous, cos and sin are.
        """
        rotated_TNH = torch.empty(heads_TNH.shape, dtype=heads_TNH.dtype)
        self._library.rotate(
            DTYPES.index(heads_TNH.dtype),
            torch.get_num_threads(),
            *heads_TNH.shape,
            heads_TNH.stride(0),
            heads_TNH.data_ptr(),
            cos_TH.data_ptr(),
            sin_TH.data_ptr(),
            rotated_TNH.data_ptr(),
        )
        return rotated_TNH

    def attend_rows(
        self,
        spans: SpanRows,
        tables: NDArray[np.int64],
        *,
        query_TNH: Tensor,
        key_TKH: Tensor,
        value_TKH: Tensor,
        key_PSKH: Tensor,
        value_PSKH: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
        attended_TNH: Tensor,
    ) -> None:
        """Store keys and values of the rows of `spans` in their requests' pages; each attends to
        the last `window` tokens up to itself, or to all, and gets its row of `attended_TNH`.

        `tables`: for each request the address of its pages, int64, one per S tokens from token 0
        on. H is a multiple of MULTIPLE; each row of query, key and value is contiguous, as is
        `attended_TNH`. Raises MemoryError.
        """
        kv_heads, head_size = key_TKH.shape[1:]
        failed = _I64(0)
        told = _Rows(
            kind=DTYPES.index(query_TNH.dtype),
            spans=len(spans.rows),
            heads=query_TNH.shape[1],
            kv_heads=kv_heads,
            head_size=head_size,
            page_tokens=key_PSKH.shape[1],
            longest=int((spans.positions + spans.counts).max()),
            window=window or 0,
            query_stride=query_TNH.stride(0),
            key_stride=key_TKH.stride(0),
            value_stride=value_TKH.stride(0),
            scale=scale,
            softcap=softcap or 0.0,
            rows=spans.rows.ctypes.data,
            counts=spans.counts.ctypes.data,
            positions=spans.positions.ctypes.data,
            tables=tables.ctypes.data,
            query=query_TNH.data_ptr(),
            key=key_TKH.data_ptr(),
            value=value_TKH.data_ptr(),
            key_pages=key_PSKH.data_ptr(),
            value_pages=value_PSKH.data_ptr(),
            attended=attended_TNH.data_ptr(),
            failed=ctypes.addressof(failed),
        )
        self._library.attend_rows(ctypes.byref(told), torch.get_num_threads())
        if failed.value:
            raise MemoryError(f"no memory for the scores of {told.longest} tokens")


@functools.cache
def compiled_kernels() -> Kernels | None:
    """None where they were not built, or built from another source, or the CPU lacks AVX2."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(_LIBRARY_NAME + suffix)
        if path.exists():
            break
    else:
        return None
    library = ctypes.CDLL(str(path))
    try:
        edition = _I64.in_dll(library, "kernels_edition").value
    except ValueError:
        return None
    if edition != _EDITION:  # before its functions: another edition has others
        return None
    library.kernels_instructions.restype = _I64
    instructions = library.kernels_instructions()
    if instructions < 0:
        return None
    library.multiply.restype = None
    library.multiply.argtypes = [*(_I64,) * 6, *(_POINTER,) * 5]
    library.rms_norm.restype = None
    library.rms_norm.argtypes = [*(_I64,) * 4, _FLOAT, *(_POINTER,) * 3]
    library.silu_gate.restype = None
    library.silu_gate.argtypes = [*(_I64,) * 4, *(_POINTER,) * 2]
    library.rotate.restype = None
    library.rotate.argtypes = [*(_I64,) * 6, *(_POINTER,) * 4]
    library.attend_rows.restype = None
    library.attend_rows.argtypes = [ctypes.POINTER(_Rows), _I64]
    return Kernels(library, instructions=instructions)
