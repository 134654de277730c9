"""Machines as network namespaces with addresses of their own; runs documented commands on them."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.docs.console_world import SHELL, make_shims, run_shell
from tests.docs.pages import DOCS, ROOT, Block, blocks
from tests.shaped_links.network import Namespaces, Side
from tests.waiting import PATIENCE_S

PAGE = DOCS / "three-machines.md"
ADDRESSES: dict[Side, str] = {"a": "10.99.0.1", "b": "10.99.0.2", "c": "10.99.0.3"}
CHECKPOINT = "/models/smollm2"  # on the page
STAYING = ("helixweb up", "helix-agent join")
ASKED_AGAIN = ("helixweb status", "helixweb api GET")


class Machines:
    """Runs a page's commands. `replaced`: what the page says, and what it is here."""

    def __init__(self, folder: Path, network: Namespaces, replaced: Mapping[str, str]) -> None:
        self._folder = folder
        self.network = network
        self.replaced = dict(replaced)
        self._staying: list[subprocess.Popen[bytes]] = []
        make_shims(folder / "bin")
        for side in network.names:
            (folder / side).mkdir()

    @property
    def nodes(self) -> list[str]:
        return [machine_of(join) for join in commands("helix-agent join")]

    @property
    def checkpoint(self) -> str:
        return self.replaced[CHECKPOINT]

    def start_site(self) -> str:
        """Returns the login link."""
        (up,) = commands("helixweb up")
        link = re.search(r"http\S+/login/link/\S+", self.run(up, "a"))
        assert link is not None
        return link[0]

    def join(self, token: str) -> None:
        """Start the agents that the page has."""
        self.replaced["hlxj_…"] = token
        for join in commands("helix-agent join"):
            self.run(join, machine_of(join))

    def run(self, block: Block, side: Side) -> str:
        """What every command of the block said; what it should say is waited for."""
        block = self.here(block)
        expected, said = block.expected, ""
        for command in block.commands:
            is_last = command == block.commands[-1]
            if command.startswith(STAYING):
                said += self._start(command, side, until=expected)
            elif command.startswith(ASKED_AGAIN) and is_last:
                said += self.until(command, side, expected)
            else:
                status, text = self.once(command, side)
                assert status == 0, f"{block.where}: {command}\n{text[-3000:]}"
                said += text
        for line in expected:
            assert re.search(line, said), f"{block.where} should say {line}\n{said[-3000:]}"
        if token := re.search(r"hlxj_[\w-]+", said):
            self.replaced["hlxj_…"] = token[0]
        return said

    def once(self, command: str, side: Side) -> tuple[int, str]:
        """The exit status of a command that ends, and what it said."""
        done = run_shell(
            command,
            cwd=self._folder / side,
            env=self._environment(side),
            inside=self._inside(side),
        )
        return done.status, done.said

    def until(self, command: str, side: Side, expected: list[str]) -> str:
        """Ask again until it says all of it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            _, said = self.once(command, side)
            if all(re.search(line, said) for line in expected):
                return said
            assert time.monotonic() < deadline, f"{command} should say {expected}\n{said[-3000:]}"
            time.sleep(3)

    def end(self) -> None:
        for process in reversed(self._staying):
            process.send_signal(signal.SIGTERM)
        for process in self._staying:
            process.wait(PATIENCE_S)

    def _start(self, command: str, side: Side, *, until: list[str]) -> str:
        log = self._folder / f"{side}.log"
        with log.open("wb") as said:
            process = subprocess.Popen(
                [*self._inside(side), *SHELL, f"exec {command}"],
                cwd=self._folder / side,
                env=self._environment(side),
                stdout=said,
                stderr=said,
            )
        self._staying.append(process)
        deadline = time.monotonic() + PATIENCE_S
        while not all(re.search(line, text := log.read_text()) for line in until):
            assert process.poll() is None, f"{command} ended:\n{text[-3000:]}"
            assert time.monotonic() < deadline, f"{command} should say {until}\n{text[-3000:]}"
            time.sleep(0.2)
        return text

    def _inside(self, side: Side) -> list[str]:
        return ["ip", "netns", "exec", self.network.names[side]]

    def _environment(self, side: Side) -> dict[str, str]:
        known = {key: value for key, value in os.environ.items() if not key.startswith("HELIX")}
        home = str(self._folder / side)
        return {
            **known,
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_STATE_HOME": home,
            "HELIX_DATA_DIR": f"{home}/data",
            "DATABASE_URL": "",
            "REDIS_URL": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
        }

    def here(self, block: Block) -> Block:
        """With what the page's examples are here."""
        text = block.text
        for written, here in self.replaced.items():
            text = text.replace(written, here)
        return replace(block, text=text)


def commands(program: str) -> list[Block]:
    """The blocks of the page that begin with it."""
    return [block for block in blocks(PAGE) if block.commands[0].startswith(program)]


def machine_of(block: Block) -> Side:
    """The one that the text before the block named last."""
    before = "\n".join(PAGE.read_text().splitlines()[: block.line])
    side: Side = re.findall(r"[Oo]n \*\*([abc])\*\*", before)[-1]
    return side
