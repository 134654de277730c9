"""Wakes a thread that waits in poll or select; any thread may call `wake`."""

import contextlib
import os


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
