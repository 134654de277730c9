"""PostgreSQL and Redis servers of a test run alone, which may be killed at any moment."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from helixweb.demo.processes import free_port
from tests.waiting import until


class Server(Protocol):
    """Made and started by its class; `url` is where it answers."""

    name: str
    url: str

    def kill(self) -> None:
        """SIGKILL to all of its processes; what it had not written is gone."""

    def start(self) -> None:
        """Again, with what it had written; returns when it answers."""

    def close(self) -> None: ...


def postgres_binaries() -> Path | None:
    """The folder of the newest PostgreSQL server's programs; None: none is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


class PostgresServer:
    """Survives a kill of its processes, though not of the machine; `settings` are added to its
    command line."""

    def __init__(self, binaries: Path, *, settings: Sequence[str] = ()) -> None:
        self.name = "postgresql"
        self._folder = Path(tempfile.mkdtemp(prefix="helixweb-postgres-"))
        self._binaries = binaries
        self._settings = ("listen_addresses=127.0.0.1", "fsync=off", *settings)
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            account = pwd.getpwnam("postgres")
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._data = self._folder / "data"
        self._port = free_port()
        self.url = f"postgres://helix@127.0.0.1:{self._port}/postgres"
        command = [binaries / "initdb", "-D", self._data, "-U", "helix", "-A", "trust"]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._user
        )
        self.start()

    def start(self) -> None:
        settings = [word for setting in self._settings for word in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres", "-D", self._data, "-p", str(self._port),
                    "-k", self._folder, *settings,
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._user,
            )  # fmt: skip
        until(self._answers, "PostgreSQL answers")

    def make_database(self, name: str) -> str:
        """An empty one; its URL."""
        import psycopg  # not installed everywhere

        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}")
        return f"{self.url.rpartition('/')[0]}/{name}"

    def kill(self) -> None:
        for part in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._process.send_signal(signal.SIGQUIT)  # at once
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)  # its last children may write still

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
        asked = [self._binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        return subprocess.run(asked, check=False).returncode == 0


class RedisServer:
    """Keeps nothing: messages are wake-ups, and rows are the truth."""

    def __init__(self, binary: str) -> None:
        self.name = "redis"
        self._binary = binary
        self._folder = Path(tempfile.mkdtemp(prefix="helixweb-redis-"))
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._binary, "--port", str(self._port), "--bind", "127.0.0.1", "--save", ""],
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        )
        until(self._answers, f"Redis answers at port {self._port}")

    def _answers(self) -> bool:
        assert self._process.poll() is None, f"Redis ended; is port {self._port} taken?"
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            return True
        return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder)
