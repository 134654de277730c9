"""Keeps the processes of a site running: starts them, starts again what dies, ends all together.

Knows nothing of what they do, and no Django: it must outlive all of them.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

# Exit status of our programs when their caller must change something: no use to try again.
CALLED_WRONGLY = 2
_PR_SET_PDEATHSIG = 1
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
# A child that ran this long is taken to be well: the next pause is the first again.
WELL_AFTER_S = 60.0
LOOK_S, _ENDING_LOOK_S = 1.0, 0.02
LONGEST_LOG_BYTES = 20_000_000
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One process. `ends`: the signals that ask it to end, each with the seconds until the next;
    after the last it is killed, with all that it started. `is_up`: it does its work; asked until
    it is true. `remedy` is for when it says that its caller must change something."""

    name: str
    command: tuple[str, ...]
    ends: tuple[tuple[signal.Signals, float], ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    passes: tuple[int, ...] = ()
    log: Path | None = None
    remedy: str = ""
    is_up: Callable[[], bool] = lambda: True

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the process in its own session: Celery hangs in its warm shutdown when its process
        group is signalled, as a terminal does at Ctrl-C."""
        output = None if self.log is None else self.log.open("ab")
        try:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output else None,
                env={**os.environ, **self.env},
                cwd=self.cwd,
                pass_fds=self.passes,
                start_new_session=True,
                preexec_fn=dies_with_its_parent(),
            )
        finally:
            if output is not None:
                output.close()

    def last_lines(self, count: int = 8) -> str:
        """The end of its log, indented; empty if it writes to our own output."""
        if self.log is None or not self.log.exists():
            return ""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-count:])


@dataclass(slots=True, kw_only=True)
class Started:
    """A child that was started."""

    child: Child
    process: "subprocess.Popen[bytes]"
    asked_to_end: int = 0
    next_signal_at: float = 0.0

    def end(self, now: float) -> None:
        """Send the signal that is due now, if one is."""
        ends = self.child.ends
        if now < self.next_signal_at:
            return
        if self.asked_to_end == len(ends):
            kill_session(self.process.pid)
            return
        number, patience_s = ends[self.asked_to_end]
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.asked_to_end, self.next_signal_at = self.asked_to_end + 1, now + patience_s


def end_all(started: Iterable[Started], *, clock: Callable[[], float] = time.monotonic) -> None:
    """Ask all to end at once, insist, and at last kill; returns when all have ended."""
    ending = [one for one in started if one.process.poll() is None]
    pids = [one.process.pid for one in ending]  # those of others may be others' by now
    while ending:
        for one in ending:
            one.end(clock())
        # Until one has ended, or a signal may be due; in the end each is killed, so the loop ends.
        with contextlib.suppress(subprocess.TimeoutExpired):
            ending[0].process.wait(_ENDING_LOOK_S)
        ending = [one for one in ending if one.process.poll() is None]
    for pid in pids:
        kill_session(pid)  # what a killed worker left of its pool


def kill_session(leader: int) -> None:
    """Kill the remaining processes of the group that `leader` started, which is ours alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def dies_with_its_parent() -> Callable[[], None] | None:
    """Run in the child before its program: when the parent is killed, so that it can ask no child
    to end, the kernel does (Linux alone has this)."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before that
            os._exit(1)

    return ask


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
                self._start_again(one, now=now)
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
        kill_session(one.process.pid)
        if code == CALLED_WRONGLY:
            one.given_up = True
            self.say(f"{one.child.name} {how} and is not started again{_where(one.child)}:")
            for text in filter(None, (one.child.last_lines(2), one.child.remedy)):
                self.say(text)
            return
        if now - one.started_at >= WELL_AFTER_S:
            one.pause_s = FIRST_PAUSE_S
        self._put_off(one, how, now=now)

    def _start_again(self, one: Kept, *, now: float) -> None:
        try:
            one.process = one.child.start()
        except OSError as error:  # without memory, or a disk for its log
            self._put_off(one, f"cannot be started ({error})", now=now)
            return
        one.again_at, one.started_at = None, now
        self.say(f"{one.child.name} was started again (process {one.process.pid}).")

    def _put_off(self, one: Kept, why: str, *, now: float) -> None:
        self.say(f"{one.child.name} {why}; again in {one.pause_s:g} s{_where(one.child)}.")
        one.again_at = now + one.pause_s
        one.pause_s = min(LONGEST_PAUSE_S, 2 * one.pause_s)


def _where(child: Child) -> str:
    return f" (log: {child.log})" if child.log else ""


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
    """Keep the old part of a long log beside it, and no more than that; on a full disk nothing."""
    with contextlib.suppress(FileNotFoundError):
        if log is not None and log.stat().st_size > LONGEST_LOG_BYTES:
            old = log.with_suffix(".1.log")
            try:
                shutil.copyfile(log, old)
            except OSError:
                with contextlib.suppress(OSError):
                    old.unlink()
            os.truncate(log, 0)  # it is written to by appending
