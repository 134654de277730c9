"""What becomes of memory that the C library's allocator has freed: kept, or given back."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # names of glibc's malloc.h
_LARGE_BYTES, _ARENAS = 256 * 1024, 2
_STEP_BYTES, _KEPT_BYTES = 32 << 20, 64 << 20


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
    _set({_MMAP_THRESHOLD: _LARGE_BYTES, _TRIM_THRESHOLD: _LARGE_BYTES, _ARENA_MAX: _ARENAS})


def keep_freed_memory() -> None:
    """Call once, before the first step; without effect where there is no glibc.

    glibc gives buffers of 128 KB or more back to the system when they are freed, until it has freed
    a larger one; the temporary tensors of a step are such buffers. Sampling one row of 128 256
    logits with top-p took 1000 page faults, half of its time. The thresholds are those that glibc
    reaches by itself once a buffer of 32 MB was freed.
    """
    _set({_MMAP_THRESHOLD: _STEP_BYTES, _TRIM_THRESHOLD: _KEPT_BYTES})


def _set(parameters: dict[int, int]) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):  # musl has neither
        for parameter, value in parameters.items():
            libc.mallopt(parameter, value)
