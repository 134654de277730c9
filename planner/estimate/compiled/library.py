"""Finds the compiled loops."""

import ctypes
import functools
from pathlib import Path

from planner import native
from planner.native import I64, POINTER, REAL


def is_compiled() -> bool:
    """Whether the loops run as machine code here."""
    return library() is not None


@functools.cache
def library() -> ctypes.CDLL | None:
    return native.library(
        Path(__file__).parent,
        "_estimate",
        edition=("estimate_edition", 10),
        functions={
            "sustained_load": (
                None,
                [POINTER, I64, I64, I64, *[POINTER] * 15, REAL, POINTER, POINTER],
            ),
            "anneal_estimate": (
                REAL,
                [
                    *(POINTER, I64, I64, I64, I64, I64, I64, REAL),
                    *[POINTER] * 19,
                    *(I64, I64, I64, REAL, REAL, I64),
                    *[POINTER] * 6,
                ],
            ),
        },
    )
