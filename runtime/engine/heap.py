"""Keeps the memory of a step with the process, so that the next step does not fault it in again."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of glibc's malloc.h
_LARGE_BYTES = 32 << 20
_KEPT_BYTES = 64 << 20


def keep_freed_memory() -> None:
    """Call once, before the first step; without effect where there is no glibc.

    glibc gives buffers of 128 KB or more back to the system when they are freed, until it has freed
    a larger one; the temporary tensors of a step are such buffers. Sampling one row of 128 256
    logits with top-p took 1000 page faults, half of its time. The thresholds are those that glibc
    reaches by itself once a buffer of 32 MB was freed.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):  # musl has neither
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
