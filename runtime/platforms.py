"""What differs between Linux, macOS and Windows: locks of files, signals, ends of process trees.

All that is POSIX only in agents and their stages is here, so that they run on machines without it;
`tests/runtime/test_portable_agent.py` holds the rest of the code to that.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil

# CUDA counts the fastest GPU first; everything here counts them as nvidia-smi does
CUDA_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
_PCI_DEVICES = Path("/sys/bus/pci/devices")


class AlreadyLocked(Exception):
    """Another process has the file."""


if sys.platform == "win32":
    import msvcrt

    def lock_file(file: IO[str], *, shared: bool = False) -> None:
        """Keep it to this process until it is closed, also where `shared`. Raises AlreadyLocked."""
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise AlreadyLocked from error
else:
    import fcntl

    def lock_file(file: IO[str], *, shared: bool = False) -> None:
        """Keep it to this process, or to those that ask for it `shared`, until it is closed.

        Raises AlreadyLocked.
        """
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyLocked from error


def pci_device_file(address: str) -> Path:
    """What every user may open of the device at that PCI address; only Linux has it."""
    return _PCI_DEVICES / address / "uevent"


def on_signals(numbers: tuple[int, ...], heard: Callable[[int], object]) -> None:
    """Have the running loop call `heard` with each signal that comes from now on."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        try:
            loop.add_signal_handler(number, heard, number)
        except NotImplementedError:  # loops of Windows
            signal.signal(number, lambda came, _frame: _soon(loop, heard, came))


def _soon(loop: asyncio.AbstractEventLoop, heard: Callable[[int], object], number: int) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(heard, number)


def kill_session(leader: int) -> None:
    """End at once the process `leader`, which began a session of its own, and all in it; without
    sessions all that descends from it."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(leader)
        for one in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
