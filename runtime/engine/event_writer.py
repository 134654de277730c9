"""Writes event lines to the agent from a thread, so that a slow reader never delays a token."""

import queue
import threading
from collections.abc import Callable
from typing import BinaryIO

from runtime.protocol.stage_pipe import StageEvent, StatsEvent

_MOST_WAITING = 64  # an agent that does not read for a minute misses stats, nothing else
_FLUSH_TIMEOUT_S = 2.0


class EventWriter:
    """Owns the thread that writes a stage's events for its agent; all of the stage calls it.

    `on_broken` is called, from the thread, when the reader is gone.
    """

    def __init__(self, stream: BinaryIO, *, on_broken: Callable[[], None]) -> None:
        self._stream = stream
        self._on_broken = on_broken
        self._waiting: queue.SimpleQueue[StageEvent | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="event writer", daemon=True)
        self._thread.start()

    def write(self, event: StageEvent) -> None:
        """Queue an event; never blocks. Stats are dropped while too many events wait."""
        if not isinstance(event, StatsEvent) or self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(event)

    def close(self) -> None:
        """Wait until all is written, but not for a reader that has stopped reading."""
        self._waiting.put(None)
        self._thread.join(_FLUSH_TIMEOUT_S)

    def _write_all(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._stream.write(event.to_line())
                self._stream.flush()
            except (OSError, ValueError):  # the pipe is broken or closed
                self._on_broken()
                return
