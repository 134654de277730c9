"""The processes a site consists of: how each is started, and how it is asked to end."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Exit status of our programs when their caller must change something: no use to try again.
CALLED_WRONGLY = 2
_PR_SET_PDEATHSIG = 1


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
        time.sleep(0.02)  # each child is killed in the end, so the loop ends
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
