"""Celery's filesystem transport without its races, for a site without Redis.

Kombu's own writes a message, and the first table of an exchange, in place: a reader that comes in
between finds half a file and the worker ends. Here a file appears whole under its name, and
taking it is one rename. A message is only a wake-up (docs/decisions/0001), so one that cannot be
read is logged and dropped.
"""

import contextlib
import logging
import os
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps, loads

logger = logging.getLogger(__name__)


class Channel(filesystem.Channel):
    """Messages are files `<time>_<id>.<queue>.msg` in the data folder, taken in their order."""

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        name = f"{time.time_ns():020d}_{uuid.uuid4().hex}.{queue}.msg"
        path = Path(self.data_folder_out) / name
        hidden = _write_hidden(path, dumps(payload))
        os.replace(hidden, path)

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        folder = Path(self.data_folder_in)
        for name in sorted(os.listdir(folder)):
            if name.partition(".")[2] != f"{queue}.msg":
                continue
            taken = folder / f".{name}.taken"
            try:
                os.rename(folder / name, taken)
            except FileNotFoundError:
                continue  # another worker was faster
            text = taken.read_text()
            taken.unlink()
            try:
                return loads(text)
            except ValueError:
                logger.error("dropped message %s of queue %s: not JSON", name, queue)
        raise Empty

    def _queue_bind(self, exchange: str, routing_key: Any, pattern: Any, queue: Any) -> None:
        table: Path = self._exchange_file(exchange)  # type: ignore[attr-defined]
        if not table.exists():
            self.control_folder.mkdir(exist_ok=True)
            hidden = _write_hidden(table, "[]")
            with contextlib.suppress(FileExistsError):
                os.link(hidden, table)
            hidden.unlink()
        super()._queue_bind(exchange, routing_key, pattern, queue)


class Transport(filesystem.Transport):
    """Named in settings as CELERY_BROKER_TRANSPORT.

    For an asynchronous transport a worker gives each of its processes a pipe. Otherwise they share
    a queue, and one that is killed while it waits there takes the queue's lock along: the worker
    lives and never does anything again.
    """

    Channel = Channel
    implements = filesystem.Transport.implements.extend(asynchronous=True)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Called by the worker; `loop` is kombu's hub."""
        loop.call_repeatedly(self.polling_interval, self._take_all)

    def _take_all(self) -> None:
        """Deliver what waits, as far as the worker may take it."""
        cycle: Any = self.cycle  # kombu's stubs do not know that it is there from the start
        with contextlib.suppress(Empty):
            while True:
                cycle.get(self._deliver)


def _write_hidden(path: Path, text: str) -> Path:
    """The content of `path` under a name beside it that no reader looks for. Raises OSError, having
    left nothing there."""
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        hidden.write_text(text)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise
    return hidden
