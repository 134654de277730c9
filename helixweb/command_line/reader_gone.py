"""Ends a command that waits for news when nobody reads it any more, as `tail -f` does."""

import os
import select
import threading
from typing import TextIO

from helixweb.command_line import exit_codes


def end_with_the_reader(out: TextIO) -> None:
    """From now on, if `out` is a pipe and its reader goes, so does this process. What was said is
    flushed line by line, so nothing is lost; where none can be watched, the next line ends it."""
    try:
        number = out.fileno()
    except (OSError, ValueError):
        return
    if hasattr(select, "poll"):
        threading.Thread(target=_watch, args=(number,), daemon=True).start()


def _watch(number: int) -> None:
    watched = select.poll()
    watched.register(number, 0)  # only what cannot be left out: broken, hung up
    if any(state & select.POLLERR for _, state in watched.poll()):
        os._exit(exit_codes.OK)
