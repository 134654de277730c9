"""Gives memory that the C library's allocator has freed back to the system."""

import ctypes


def give_back_free_memory() -> None:
    """What lies free between what is used, too; some milliseconds without memory for others.

    Layers that a stage forgot leave holes, as do clients of a coordinator: after nine thousand of
    them, half of whom hung up, a third of the heap's 27 MB was free, while what was used had not
    grown.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # not on macOS, nor with musl
        libc.malloc_trim(0)
