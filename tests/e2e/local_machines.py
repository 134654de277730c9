"""Unequal nodes as processes of this machine, which join a site on loopback."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from helixweb.demo.local_cluster import LocalNode
from helixweb.demo.processes import Processes, free_port
from helixweb.demo.site import wait_until
from tests.waiting import PATIENCE_S


class LocalMachines:
    """`helixweb up`, and one `helix-agent join` for each of `members` with these `options`."""

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        checkpoint: Path,
        members: Sequence[LocalNode],
        options: Sequence[str],
    ) -> None:
        self.nodes = [member.name for member in members]
        self.checkpoint = str(checkpoint)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.data = folder / "site"
        self._processes = processes
        self._folder = folder
        self._members = members
        self._options = options

    def start_site(self) -> str:
        command = [
            sys.executable, "-m", "helixweb.command_line", "up", "--json",
            "--data", str(self.data), "--port", self.url.rpartition(":")[2],
            "--coordinator-port", str(free_port()),
        ]  # fmt: skip
        log = self._processes.start("up", command).child.log
        assert log is not None
        wait_until(
            "the site is up",
            lambda: '"login_link"' in log.read_text(),
            timeout_s=PATIENCE_S,
            check_alive=self._processes.check_alive,
        )
        (line,) = [line for line in log.read_text().splitlines() if '"login_link"' in line]
        link: str = json.loads(line)["login_link"]
        return link

    def join(self, token: str) -> None:
        for member in self._members:
            command = [
                sys.executable, "-m", "runtime.agent.join", "join", self.url, "--token", token,
                "--name", member.name, "--data-dir", str(self._folder / member.name),
                "--memory", str(member.memory_bytes),
                "--relative-speed", str(member.relative_speed), "--shutdown-grace", "1",
                *self._options,
            ]  # fmt: skip
            self._processes.start(member.name, command)
