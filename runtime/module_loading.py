"""Imports that take long, without the garbage collector."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading(module: str, *, threshold: int | None = None) -> Iterator[None]:
    """Around the import of `module`: if it is the first, what it loads is never collected.

    Modules stay as long as the process. Looking for cycles in them takes a third of the CPU time in
    which a stage imports torch and ends again. Later imports freeze nothing, for by then a decoder
    may wait to be collected. `threshold`: how many new objects start a collection from then on.
    """
    if module in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if threshold is not None:
            gc.set_threshold(threshold)
        gc.enable()
