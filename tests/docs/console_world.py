"""One site for all commands of the documentation: rows of everything, a web process, a coordinator.

The coordinator that answers chats is a double; everything else is the product.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helixweb.demo.processes import Processes, free_port
from helixweb.demo.scenario import web_command
from helixweb.demo.site import wait_until
from helixweb.operations.asking import answers
from tests.e2e import blank_database
from tests.helixweb.chat_double import ChatDouble
from tests.programs import run_python

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300
COMMAND_S = 300
SHIMS = {
    "python": "",
    "helixweb": "-m helixweb.command_line",
    "helix-agent": "-m runtime.agent.join",
}
LINKED = ("docs", "manage.py", "benchmarks", "packaging", "constraints.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command said, on both streams, and its exit status."""

    status: int
    said: str


class World:
    """`replaced`: what pages say, and what it is here."""

    def __init__(self, folder: Path, env: dict[str, str], replaced: dict[str, str]) -> None:
        self._folder = folder
        self._env = env
        self._replaced = replaced

    def room(self, name: str) -> Path:
        """A folder of a page, in which paths of the checkout lead where they do there."""
        room = self._folder / name
        if not room.exists():
            room.mkdir(parents=True)
            for link in LINKED:
                (room / link).symlink_to(ROOT / link)
        return room

    def run(self, command: str, *, room: Path, env: dict[str, str]) -> Done:
        for said, here in self._replaced.items():
            command = command.replace(said, here)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=room,
            env={**self._env, **env},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return Done(status=done.returncode, said=done.stdout + done.stderr)


def make_shims(folder: Path) -> None:
    folder.mkdir()
    for name, words in SHIMS.items():
        shim = folder / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        shim.chmod(0o755)


@contextmanager
def console_world(folder: Path, database: Path) -> Iterator[World]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    shims = folder / "bin"
    make_shims(shims)
    env = {
        "HELIX_DATA_DIR": str(folder / "data"),
        "HELIX_URL": url,
        "DATABASE_URL": "",
        "REDIS_URL": "",
        "HELIXWEB_CONFIG": str(folder / "config.toml"),
        "HOME": str(folder / "home"),
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{shims}:{os.environ['PATH']}",
    }
    blank_database.put(database, folder / "data")
    own = {**os.environ, **env}
    with (
        ChatDouble("Good ", "day.") as chat,
        Processes(log_dir=folder / "logs", cwd=ROOT, env=env) as processes,
    ):
        command = ("-m", "tests.e2e.in_site", "tests.docs.console_rows", f"{chat.url}/v1")
        rows = json.loads(run_python(*command, environ=env).stdout)
        processes.start("web", web_command(port))
        wait_until(
            "the site answers",
            lambda: answers(f"{url}/healthz"),
            timeout_s=PATIENCE_S,
            check_alive=processes.check_alive,
        )
        yield World(
            folder,
            {**own, **rows, "HELIXWEB_URL": url, "HELIXWEB_KEY": rows["KEY"]},
            {
                "http://127.0.0.1:8000": url,
                "http://COORDINATOR:8100": chat.url,
                "YOUR_NAME": rows["USERNAME"],
            },
        )
