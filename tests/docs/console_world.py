"""One site for all commands of the documentation: rows of everything, a web process, a coordinator.

The coordinator that answers chats is a double; everything else is the product.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.browsed_site import BrowsedSite
from tests.helixweb.chat_double import ChatDouble
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SHELL = ("bash", "-euo", "pipefail", "-c")
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
        return run_shell(command, cwd=room, env={**self._env, **env})


def run_shell(
    command: str, *, cwd: Path, env: Mapping[str, str], inside: Sequence[str] = ()
) -> Done:
    """To its end; `inside` are the words before the shell's own."""
    done = subprocess.run(
        [*inside, *SHELL, command],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(status=done.returncode, said=done.stdout)


def make_shims(folder: Path) -> None:
    folder.mkdir()
    for name, words in SHIMS.items():
        shim = folder / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        shim.chmod(0o755)


@contextmanager
def console_world(folder: Path, database: Path) -> Iterator[World]:
    shims = folder / "bin"
    make_shims(shims)
    env = {
        "HELIXWEB_CONFIG": str(folder / "config.toml"),
        "HOME": str(folder / "home"),
        "COLUMNS": "100",
        "PATH": f"{shims}:{os.environ['PATH']}",
    }
    with (
        ChatDouble("Good ", "day.") as chat,
        BrowsedSite.started(folder, database, **env) as site,
    ):
        rows = site.run_main("tests.docs.console_rows", f"{chat.url}/v1")
        known = {"HELIXWEB_URL": site.url, "HELIXWEB_KEY": rows["KEY"]}
        yield World(
            folder,
            {**os.environ, **site.env, **env, **rows, **known},
            {
                "http://127.0.0.1:8000": site.url,
                "http://COORDINATOR:8100": chat.url,
                "YOUR_NAME": rows["USERNAME"],
            },
        )
