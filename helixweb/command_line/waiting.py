"""Wait for work of the site, and show that something is being waited for."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from helixweb.client import Rows
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.session import Row, Session
from helixweb.command_line.surroundings import Surroundings

T = TypeVar("T")
FIRST_AFTER_S, EVERY_S, POLL_S = 1.0, 1.0, 0.5


def is_over(row: Row) -> bool:
    """Whether the work of a job or a deployment has ended."""
    return row["status"] not in ("queued", "running", "deploying")


def follow(
    site: Session,
    state: T,
    read: Callable[[], T],
    *,
    ended: Callable[[T], bool],
    tell: Callable[[T], None] = lambda state: None,
    cancel: Callable[[], T] | None = None,
) -> T:
    """`read` the state until it has `ended`, and return it. The first Ctrl-C cancels the work."""
    while True:
        try:
            tell(state)
            if ended(state):
                return state
            site.around.sleep(POLL_S)
            state = read()
        except KeyboardInterrupt:
            if cancel is None:
                raise
            site.around.warn("ending the search; the best plan so far is kept")
            state, cancel = cancel(), None


def finished(
    site: Session,
    noun: str,
    rows: Rows,
    row: Row,
    *,
    no_wait: bool,
    can_cancel: bool = False,
    tell: Callable[[Row], None] = lambda row: None,
) -> Row | None:
    """The row of a job when it has ended; with --no-wait None, and the row is shown."""
    key = row["id"]
    if no_wait:
        site.show(row, f"{noun} {key} is {row['status']}")
        return None
    cancel = (lambda: rows.do("cancel", key)) if can_cancel else None
    return follow(site, row, lambda: rows.get(key), ended=is_over, cancel=cancel, tell=tell)


def failure(noun: str, row: Row, why: str = "no answer") -> CommandFailed:
    """The error of a job that ended without a result."""
    return CommandFailed(f"{noun} {row['id']} {row['status']}: {row['error'] or why}")


def when_changed(write: Callable[[str], None]) -> Callable[[str], None]:
    """A `write` that skips a text equal to the previous one."""
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            write(text)

    return tell


@contextmanager
def waiting_for(what: str, around: Surroundings) -> Iterator[None]:
    """Within, one line on stderr, drawn again each second and removed at the end; nothing for
    what takes less than a second, or if stderr is no terminal."""
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
    begin, pause_s = time.monotonic(), FIRST_AFTER_S
    while not over.wait(pause_s):
        around.redraw(f"{what} ... {time.monotonic() - begin:.0f} s")
        pause_s = EVERY_S
    around.redraw("")
    around.err.write("\r")
