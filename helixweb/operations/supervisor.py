"""Keeps the processes of a site running: starts them, starts again what dies, ends all together.

Knows nothing of what they do, and no Django: it must outlive all of them.
"""

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from helixweb.operations.children import CALLED_WRONGLY, Child, Started, end_all, kill_session

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
# A child that ran this long is taken to be well: the next pause is the first again.
WELL_AFTER_S = 60.0
LOOK_S = 1.0
LONGEST_LOG_BYTES = 20_000_000
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(slots=True, kw_only=True)
class Kept(Started):
    """A child process and its state. `again_at`: time of its restart; None while it runs, or if
    `given_up`."""

    started_at: float
    pause_s: float = FIRST_PAUSE_S
    again_at: float | None = None
    given_up: bool = False

    @property
    def runs(self) -> bool:
        return self.again_at is None and not self.given_up


@dataclass(slots=True)
class Supervisor:
    """Restarts children that end. `say` prints messages; `clock` returns monotonic seconds."""

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    kept: list[Kept] = field(default_factory=list)

    def start(self, child: Child) -> None:
        """Start a child and supervise it from now on."""
        self.kept.append(Kept(child=child, process=child.start(), started_at=self.clock()))

    def tend(self) -> None:
        """Notice children that have ended, and restart those whose backoff is over."""
        now = self.clock()
        for one in self.kept:
            if one.runs and one.process.poll() is not None:
                self._ended(one, now=now)
            elif one.again_at is not None and one.again_at <= now:
                one.process, one.again_at, one.started_at = one.child.start(), None, now
                self.say(f"{one.child.name} was started again (process {one.process.pid}).")
            _shorten(one.child.log)

    def next_look_s(self) -> float:
        """Seconds until the next restart or check, unless a signal comes."""
        due = [one.again_at - self.clock() for one in self.kept if one.again_at is not None]
        return max(0.0, min([LOOK_S, *due]))

    def stop(self) -> None:
        """Returns when all have ended."""
        end_all(self.kept, clock=self.clock)

    def _ended(self, one: Kept, *, now: float) -> None:
        code = one.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        where = f" (log: {one.child.log})" if one.child.log else ""
        kill_session(one.process.pid)
        if code == CALLED_WRONGLY:
            one.given_up = True
            self.say(f"{one.child.name} {how} and is not started again{where}:")
            for text in filter(None, (one.child.last_lines(2), one.child.remedy)):
                self.say(text)
            return
        if now - one.started_at >= WELL_AFTER_S:
            one.pause_s = FIRST_PAUSE_S
        self.say(f"{one.child.name} {how}; again in {one.pause_s:g} s{where}.")
        one.again_at = now + one.pause_s
        one.pause_s = min(LONGEST_PAUSE_S, 2 * one.pause_s)


class Stopped(Exception):
    """The process was stopped by the signal of that number."""

    def __init__(self, number: int) -> None:
        self.number = number


class Signals:
    """Within, signals that end a process do not: `wait` raises Stopped, and returns before its
    time when a child ends."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def __enter__(self) -> "Signals":
        self._reading, writing = os.pipe()
        for end in (self._reading, writing):
            os.set_blocking(end, False)
        self._writing = writing
        self._previous_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._previous = {n: signal.signal(n, self._take) for n in (*_ENDING, signal.SIGCHLD)}
        return self

    def __exit__(self, *exc_info: object) -> None:
        signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reading)
        os.close(self._writing)

    def wait(self, timeout_s: float) -> None:
        """Wait. Raises Stopped if a signal to end came, also before."""
        if not self.taken and select.select([self._reading], [], [], timeout_s)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reading, 4096)
        if self.taken:
            raise Stopped(self.taken[0])

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number in _ENDING:
            self.taken.append(number)


def _shorten(log: Path | None) -> None:
    """Keep the old part of a long log beside it, and no more than that."""
    with contextlib.suppress(FileNotFoundError):
        if log is not None and log.stat().st_size > LONGEST_LOG_BYTES:
            shutil.copyfile(log, log.with_suffix(".1.log"))
            os.truncate(log, 0)  # it is written to by appending
