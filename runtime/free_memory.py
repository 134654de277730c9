"""Gives memory that the C library's allocator has freed back to the system."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # names of glibc's malloc.h
_LARGE_BYTES = 256 * 1024
_ARENAS = 2


def give_back_free_memory() -> None:
    """What lies free between what is used, too; some milliseconds without memory for others.

    Layers that a stage forgot leave holes, as do clients of a coordinator: after nine thousand of
    them, half of whom hung up, a third of the heap's 27 MB was free, while what was used had not
    grown.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # not on macOS, nor with musl
        libc.malloc_trim(0)


def bound_free_memory() -> None:
    """Call once, before the first thread starts; without effect where there is no glibc.

    glibc raises two thresholds by itself: once a buffer of 32 MB was freed, as encoding a long text
    does, buffers up to that size lie within its heaps, and up to 64 MB at the end of each heap are
    kept for the next; every thread has a heap of its own. Bodies of 1 MB from clients then left
    10 MB behind that nothing used, a little more with each thread. Fixed thresholds return large
    buffers when they are freed; the threads of this process mostly take turns, so two heaps do.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):  # musl has neither
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_TRIM_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_ARENA_MAX, _ARENAS)
