"""What the kernel knows of the cores a process may use: who waited for them, and who did not."""

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_THREAD = Path("/proc/thread-self/schedstat")
_IDLE, _IOWAIT = 4, 5  # fields of a line of /proc/stat, in ticks
_MOST_BYTES = 128  # of _THREAD: three numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """Counters that only grow, in seconds.

    `ran_s` and `delayed_s`: the calling thread was on a core, or was ready and waited for one.
    `idle_s`: of all cores the process may use together.
    """

    at_s: float
    ran_s: float
    delayed_s: float
    idle_s: float


def delay_reader() -> Callable[[], float] | None:
    """Reads for how many seconds the thread that calls it was ready and waited for a core, since it
    began; None where the kernel does not tell."""
    if not _THREAD.exists():
        return None
    files = _FilesOfThreads()
    return lambda: int(files.read().split()[1]) / 1e9


def core_reader(*, clock: Callable[[], float]) -> Callable[[], CoreUse] | None:
    """Reads the counters of the thread that calls it; None where the kernel keeps none (Linux
    does where it has schedstat)."""
    if not (_STAT.exists() and _THREAD.exists()):
        return None
    names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    files = _FilesOfThreads()

    def read() -> CoreUse:
        ran_ns, delayed_ns, _ = files.read().split()
        lines = (line.split() for line in _STAT.read_text().splitlines())
        idle = sum(int(line[_IDLE]) + int(line[_IOWAIT]) for line in lines if line[0] in names)
        return CoreUse(
            at_s=clock(),
            ran_s=int(ran_ns) / 1e9,
            delayed_s=int(delayed_ns) / 1e9,
            idle_s=idle * tick_s,
        )

    return read


class _FilesOfThreads(threading.local):
    """Each thread's file of counters, opened once: a step reads it twice, and opening takes ten
    times as long."""

    def __init__(self) -> None:
        self._fd = os.open(_THREAD, os.O_RDONLY)
        weakref.finalize(self, os.close, self._fd)

    def read(self) -> bytes:
        """Of the thread that calls it."""
        return os.pread(self._fd, _MOST_BYTES, 0)
