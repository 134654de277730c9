"""Shows a person that something is being waited for, and how long already."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from helixweb.command_line.surroundings import Surroundings

FIRST_AFTER_S, EVERY_S = 1.0, 1.0


@contextmanager
def waiting_for(what: str, around: Surroundings) -> Iterator[None]:
    """Within, one line on stderr, drawn anew each second and taken away at the end; nothing for
    what takes no second, and nothing where no person looks."""
    if not around.err.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(what, around, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell(what: str, around: Surroundings, over: threading.Event) -> None:
    begin, drawn = time.monotonic(), ""
    pause_s = FIRST_AFTER_S
    while not over.wait(pause_s):
        drawn = f"{what} ... {time.monotonic() - begin:.0f} s"
        around.err.write(f"\r{drawn}")
        around.err.flush()
        pause_s = EVERY_S
    if drawn:
        around.err.write(f"\r{' ' * len(drawn)}\r")
        around.err.flush()
