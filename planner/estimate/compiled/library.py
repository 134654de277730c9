"""Finds the compiled loops."""

import ctypes
import functools
from pathlib import Path

from planner import native
from planner.native import POINTER, REAL


def is_compiled() -> bool:
    """Whether the loops run as machine code here."""
    return library() is not None


@functools.cache
def library() -> ctypes.CDLL | None:
    return native.library(
        Path(__file__).parent,
        "_estimate",
        edition=("estimate_edition", 13),
        functions={
            "sustained": (None, [POINTER] * 4),
            "anneal_estimate": (REAL, [POINTER] * 4),
        },
    )
