"""PostgreSQL and Redis servers of a test run alone, which may be killed at any moment."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Protocol

import psutil

from helixweb.demo.processes import free_port


class Server(Protocol):
    """Made and started by its class; `url` is where it answers."""

    name: str
    url: str

    def kill(self) -> None:
        """SIGKILL to all of its processes; what it had not written is gone."""

    def start(self) -> None:
        """Again, with what it had written; returns when it answers, or is about to."""

    def close(self) -> None: ...


class PostgresServer:
    def __init__(self, binaries: Path) -> None:
        self.name = "postgresql"
        self._folder = Path(tempfile.mkdtemp(prefix="helixweb-postgres-"))
        self._binaries = binaries
        self._as_user: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            account = pwd.getpwnam("postgres")
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._as_user = ["runuser", "-u", "postgres", "--"]
        self._data = self._folder / "data"
        self._port = free_port()
        self.url = f"postgres://helix@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-D", str(self._data), "-U", "helix", "-A", "trust")
        self.start()

    def start(self) -> None:
        settings = f"-p {self._port} -k {self._folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._control("-o", settings, "-l", str(self._folder / "log"), "-w", "start")

    def kill(self) -> None:
        main = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        parts = [main, *main.children(recursive=True)]
        for part in parts:
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
        psutil.wait_procs(parts)

    def close(self) -> None:
        self._control("-m", "immediate", "-w", "stop")
        shutil.rmtree(self._folder)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._data), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as_user, str(self._binaries / program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._folder,
        )


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

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder)
