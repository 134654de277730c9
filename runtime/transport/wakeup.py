"""Threads that wait for sockets, and how others wake them."""

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from typing import Any

import zmq


class Wakeup:
    """Wakes a thread that polls file descriptors; threads that queue work call it.

    A pipe whose reading end is readable from a `wake` to the next `clear`.
    """

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: it is awake already
            os.write(self._write_fd, b"!")

    def clear(self) -> None:
        """Call before looking at what there is, so that what comes later wakes again."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.fd, 4096)) == 4096:
                pass

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._write_fd)


class PollingThread(ABC):
    """A thread that owns sockets: waits for them in `_poll` and does all there is in `_turn`.

    Subclasses start it, change what `_lock` guards under it, and wake it by `_wakeup`.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._closing = False
        self._wakeup = Wakeup()
        self._poller = zmq.Poller()
        self._poller.register(self._wakeup.fd, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def close(self) -> None:
        """End the thread and its sockets."""
        self._closing = True
        self._wakeup.wake()
        self._thread.join()
        self._wakeup.close()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            self._release()

    @abstractmethod
    def _turn(self) -> None:
        """Wait for something and do all there is."""

    @abstractmethod
    def _release(self) -> None:
        """Close the sockets."""

    def _poll(self, wait_s: float) -> dict[Any, int]:
        """What is readable, once something is or so much time has passed."""
        readable = dict(self._poller.poll(int(max(0.0, wait_s) * 1000)))
        if self._wakeup.fd in readable:
            self._wakeup.clear()
        return readable
