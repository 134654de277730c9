"""What a stage process writes to stderr: kept on disk within bounds, its last lines at hand.

Readable by its owner alone, as everything in the data directory.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)

_LIMIT_BYTES = 4 << 20
_TAIL_LINES = 12


def _nobody_hears(line: str) -> None:
    """The file alone keeps it."""


class ProcessLog:
    """Owns the log files of a child process; who starts it appends.

    Two files at most, `path` and `path`.1; each up to `limit_bytes` and a line.

    `tail` are the last lines; `on_line` hears every line that a process writes.
    """

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = _LIMIT_BYTES,
        on_line: Callable[[str], None] = _nobody_hears,
    ) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._on_line = on_line
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._is_broken = False

    def begin(self, title: str) -> None:
        """A new process writes from here on."""
        self.tail.clear()
        self._write(f"--- {title}\n".encode())

    def append(self, chunk: bytes) -> None:
        """A line, or a piece of one that is too long."""
        line = chunk.decode(errors="replace").rstrip()
        self.tail.append(line)
        self._write(chunk)
        self._on_line(line)

    @property
    def last_line(self) -> str:
        """The last line that says something; empty if there is none."""
        return next((line for line in reversed(self.tail) if line.strip()), "")

    def _write(self, content: bytes) -> None:
        """A full disk is told once and does not end the stage."""
        try:
            if self.path.exists() and self.path.stat().st_size >= self._limit_bytes:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(content)
            self._is_broken = False
        except OSError as error:
            if not self._is_broken:
                logger.error("the stage's log is lost from here on: %s", error)
            self._is_broken = True
