"""The site's own processes; whichever is killed is started again at once."""

import contextlib
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from helixweb.demo.processes import Processes, Running, free_port
from helixweb.demo.scenario import web_command
from helixweb.operations.asking import answers
from tests.e2e.day_of_work import Person
from tests.e2e.in_site import run_in_site
from tests.e2e.servers import Server
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
CELERY = [sys.executable, "-m", "celery", "-A", "helixweb"]
_DEAD_FOR_S = 0.2  # until whoever watches a process starts it again
_LOCKED_FOR_S = 3.0
_SERVER_GONE_FOR_S = (0.0, 4.0)
_MAKE_USER = """
from django.contrib.auth import get_user_model
from django.core.management import call_command
from helixweb.common import login_links
from helixweb.common.api_keys import create_api_key
call_command("migrate", verbosity=0)
user = get_user_model().objects.create_superuser("ada")
print(f"/login/link/{login_links.create(user)}/")
print(create_api_key(name="day", user=user, scopes=["read", "write", "serve"]).secret)
"""


class ControlPlane:
    """Made by `running`. `key` is of the user "ada", who may log in once by `login_link` and who is
    the `person`."""

    person: Person

    def __init__(
        self, processes: Processes, *, folder: Path, port: int, servers: Sequence[Server]
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.key = self.login_link = ""
        self.processes = processes
        self.kills = 0
        self.commits_at_once = bool(servers)  # SQLite has one writer
        self._folder = folder
        self._servers = {server.name: server for server in servers}
        self._commands = {
            "web": web_command(port),
            "worker": [*CELERY, "worker", "--loglevel", "WARNING"],
            "beat": [*CELERY, "beat", "--loglevel", "WARNING", "--pidfile="],
        }
        self._running: dict[str, Running] = {}
        self._killed: list[Running] = []
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._restart_dead, name="supervisor")

    @classmethod
    @contextmanager
    def running(
        cls, folder: Path, *, servers: Sequence[Server] = (), seed: int = 1, **environment: str
    ) -> Iterator["ControlPlane"]:
        """Migrated, and answering; everything but `servers`, which may be struck, too, ends with
        the block."""
        port = free_port()
        env = {
            "HELIX_DATA_DIR": str(folder / "data"),
            "HELIX_URL": f"http://127.0.0.1:{port}",
            "OMP_NUM_THREADS": "1",
            "DATABASE_URL": "",
            "REDIS_URL": "",
            **environment,
        }
        with Processes(log_dir=folder / "logs", cwd=ROOT, env=env) as processes:
            plane = cls(processes, folder=folder, port=port, servers=servers)
            try:
                plane._start()
                person = Person(plane.url, key=plane.key, dice=random.Random(seed))
                with contextlib.closing(person) as plane.person:
                    yield plane
            finally:
                plane._stop()

    def strike(self, dice: random.Random) -> str:
        """Kill one of them, or a part of the worker, or hold the database; what it was."""
        last = tuple(self._servers) or ("database",)
        what = dice.choice(("web", "web", "worker", "worker", "part of worker", "beat", *last))
        if what == "database":
            return self._hold_database()
        if what in self._servers:
            self._kill_server(self._servers[what], dice)
            return what
        running = self._running[what.removeprefix("part of ")]
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if what == "part of worker":
                process = psutil.Process(running.process.pid)
                parts = [process, *process.children(recursive=True)]
                dice.choice(parts).kill()
            else:
                os.killpg(running.process.pid, signal.SIGKILL)
        self.kills += 1
        return what

    def kill(self, name: str) -> None:
        """One of the site's processes, which is started again at once."""
        os.killpg(self._running[name].process.pid, signal.SIGKILL)
        self.kills += 1

    def pid_of(self, name: str) -> int:
        return self._running[name].process.pid

    def is_up(self) -> bool:
        return answers(f"{self.url}/readyz")

    def ask_database(self, module: str, *arguments: str) -> Any:
        """What `main` of a module of the tests returns in this site's environment."""
        return run_in_site(self.processes, module, *arguments)

    def _start(self) -> None:
        command = [sys.executable, "manage.py", "shell", "-v0", "-c", _MAKE_USER]
        *_, self.login_link, self.key = self.processes.run("make-user", command).split()
        for name, command in self._commands.items():
            self._running[name] = self.processes.start(name, command)
        until(self.is_up, f"the web answers; logs in {self._folder}")
        self._watch.start()

    def _stop(self) -> None:
        self._closing.set()
        if self._watch.is_alive():
            self._watch.join()
        for running in self._killed:  # a worker's children may outlive it for a while
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)

    def _restart_dead(self) -> None:
        while not self._closing.wait(_DEAD_FOR_S):
            for name, running in self._running.items():
                if running.process.poll() is not None:
                    self._killed.append(running)
                    self._running[name] = self.processes.start(name, self._commands[name])
            self.processes.take_ended()

    def _kill_server(self, server: Server, dice: random.Random) -> None:
        server.kill()
        self.kills += 1
        time.sleep(dice.uniform(*_SERVER_GONE_FOR_S))
        server.start()

    def _hold_database(self) -> str:
        """As a backup or a slow disk may: nobody writes for seconds."""
        path = self._folder / "data" / "helixweb.sqlite3"
        if not path.exists():
            return "nothing"
        holder = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
        with contextlib.closing(holder):
            holder.execute("BEGIN IMMEDIATE")
            time.sleep(_LOCKED_FOR_S)
            holder.execute("ROLLBACK")
        return "database"
