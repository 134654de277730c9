"""Child processes of one run: started in sessions of their own, stopped in reverse order.

Only main pids are ever signalled: Celery hangs in its warm shutdown when its group is.
"""

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helixweb.operations.supervisor import Child, Started, end_all
from runtime.protocol.ports import take_any_port

STOP_TIMEOUT_S = 15.0
HURRY_AFTER_S = 1.5


class DemoFailed(Exception):
    """A step did not do what it must; the message says which and where to look."""


@dataclass(slots=True, kw_only=True)
class Running(Started):
    """One child, and the shell command that would start it again."""

    again: str

    @property
    def name(self) -> str:
        return self.child.name


class Processes:
    """A context manager: on leaving, everything still running is stopped."""

    def __init__(self, *, log_dir: Path, cwd: Path, env: Mapping[str, str]) -> None:
        self._log_dir = log_dir
        self._cwd = cwd
        self._own_env = dict(env)
        # Several agents on one machine: they share its first GPU, each with a budget of its own.
        self._env = {"CUDA_VISIBLE_DEVICES": "0", **os.environ, **env}
        self._running: list[Running] = []
        log_dir.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop_all()

    @property
    def children(self) -> tuple[Running, ...]:
        """Processes that were started and not stopped, oldest first."""
        return tuple(self._running)

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        gives_up_at_quit: bool = False,
    ) -> Running:
        """Start a long-running child that logs to `<log_dir>/<name>.log`.

        `gives_up_at_quit`: SIGTERM lets it finish its work, however long; at SIGQUIT it gives up.
        """
        hurried = ((signal.SIGTERM, HURRY_AFTER_S), (signal.SIGQUIT, STOP_TIMEOUT_S))
        child = Child(
            name=name,
            command=tuple(command),
            ends=hurried if gives_up_at_quit else ((signal.SIGTERM, STOP_TIMEOUT_S),),
            env={**self._env, **(env or {})},
            cwd=self._cwd,
            log=self._log_dir / f"{name}.log",
        )
        variables = [f"{key}={value}" for key, value in self._own_env.items()]
        again = shlex.join(["env", *variables, *command])
        running = Running(child=child, process=child.start(), again=again)
        self._running.append(running)
        return running

    def run(self, name: str, command: Sequence[str], *, timeout_s: float = 300.0) -> str:
        """Run a child to its end and return its stdout. Raises DemoFailed."""
        log = self._log_dir / f"{name}.log"
        with log.open("ab") as errors:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self._cwd,
                    env=self._env,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise DemoFailed(
                    f"{name} did not end within {timeout_s:.0f} s; see {log}"
                ) from error
        if done.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise DemoFailed(f"{name} ended with exit code {done.returncode}; see {log}\n{tail}")
        return done.stdout.decode()

    def check_alive(self) -> None:
        """Raise DemoFailed if a child has ended by itself."""
        for running in self._running:
            code = running.process.poll()
            if code is not None:
                raise DemoFailed(
                    f"{running.name} ended with exit code {code}; see {running.child.log}\n"
                    f"{running.child.last_lines()}"
                )

    def take_ended(self) -> list[Running]:
        """Children that have ended by themselves since the last call; they are forgotten."""
        ended = [running for running in self._running if running.process.poll() is not None]
        self._running = [running for running in self._running if running not in ended]
        return ended

    def stop(self, running: Running) -> None:
        """SIGTERM to the main pid, then SIGKILL if it does not end."""
        self._running = [other for other in self._running if other is not running]
        end_all([running])

    def stop_all(self) -> None:
        """Stop the newest first, so that clients go before their servers.

        A second Ctrl-C meanwhile is not heeded: it would leave the rest running.
        """
        stopping, self._running = list(reversed(self._running)), []
        with _undisturbed():
            end_all(stopping)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While inside, no other run uses this folder. Raises DemoFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(
                f"another `make demo` runs in this checkout (its data are in {folder}); "
                "stop that one with Ctrl-C first"
            ) from None
        yield


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def free_port() -> int:
    """A loopback port that none of our processes is given again until this one ends."""
    return take_any_port("127.0.0.1")
