"""A machine with several GPUs: an agent process, so a node, for each group of them.

Each is pinned to its GPUs and has a data directory below the machine's, named after their PCI
addresses: a GPU that moves to another slot, or is taken out, does not change who the others are.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from runtime.agent.gpus import FoundGpu, pinned
from runtime.backoff import Backoff
from runtime.membership.identity import IDENTITY_FILE
from runtime.platforms import on_signals
from runtime.protocol.addresses import Advertised, bracketed
from runtime.protocol.join_tokens import TOKEN_VARIABLE
from runtime.tasks import within
from runtime.whole_file import write_whole

logger = logging.getLogger(__name__)

_MACHINE_FILE = "machine"
_WRONG = 2  # the exit status of an agent that starting again does not help
_PREFIX = "gpu-"
_STEADY_S = 60.0  # an agent that ran as long is started again at once


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgent:
    """One agent of this machine: its name, its command line and its environment."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]


def is_one_node(data_dir: Path, groups: Sequence[Sequence[FoundGpu]]) -> bool:
    """True if one agent has all GPUs: there is one group at most, or it joined like that."""
    if (data_dir / IDENTITY_FILE).exists():
        return True
    return len(groups) <= 1 and not any(data_dir.glob(f"{_PREFIX}*"))


def node_agents(
    argv: Sequence[str], options: argparse.Namespace, groups: Sequence[Sequence[FoundGpu]]
) -> list[NodeAgent]:
    """`argv` as parsed into `options`. Ports that were given are the first node's; the others
    have those after it. The join token is in the environment, not in the command."""
    machine = _machine_uuid(options.data_dir)
    arguments = _without_token(argv)
    token = {} if options.token is None else {TOKEN_VARIABLE: options.token}
    agents = []
    for number, group in enumerate(groups):
        suffix = "gpu" + "-".join(str(gpu.index) for gpu in group)
        folder = options.data_dir / (_PREFIX + "+".join(gpu.pci for gpu in group).replace(":", "-"))
        # Of an option that is given twice, the second counts.
        own = ["--data-dir", str(folder), "--machine-uuid", machine, "--name-suffix", suffix]
        if len(group) == 1 and options.tensor_parallel is not None:
            own += ["--tensor-parallel", "1"]
        for kind in ("data", "weights", "metrics"):
            if first := getattr(options, f"{kind}_port"):
                own += [f"--{kind}-port", str(first + number)]
        if options.advertise is not None:
            own += ["--advertise", _advertised(options.advertise, number)]
        command = (sys.executable, "-m", "runtime", "agent", *arguments, *own)
        environment = pinned(group, os.environ) | token
        agents.append(NodeAgent(name=suffix, command=command, environment=environment))
    return agents


async def run_agents(agents: Sequence[NodeAgent], *, must_all_end_well: bool = False) -> int:
    """Run all until a signal ends them; one that dies is started again.

    Returns 2 if each was started wrongly or its node was removed, or, if they `must_all_end_well`,
    one of them; else 0.
    """
    stopped = asyncio.Event()
    running: dict[str, asyncio.subprocess.Process] = {}
    signals: list[int] = []

    def end(number: int) -> None:
        signals.append(number)
        stopped.set()
        for process in running.values():
            if process.returncode is None:
                process.send_signal(number)

    on_signals((signal.SIGTERM, signal.SIGINT), end)
    statuses = await asyncio.gather(
        *(_keep_running(one, running, stopped, signals) for one in agents)
    )
    is_wrong = [status == _WRONG for status in statuses]
    return _WRONG if any(is_wrong) and (must_all_end_well or all(is_wrong)) else 0


async def _keep_running(
    agent: NodeAgent,
    running: dict[str, asyncio.subprocess.Process],
    stopped: asyncio.Event,
    signals: Sequence[int],
) -> int:
    backoff = Backoff(rng=random.SystemRandom())
    while True:
        began_s = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                *agent.command,
                stdin=PIPE,  # it ends when this process does
                env=agent.environment,
                start_new_session=True,  # a Ctrl-C comes by `end` alone
            )
        except OSError as error:  # without memory, or too many processes
            status, how = 0, f"cannot be started ({error})"
        else:
            running[agent.name] = process
            for number in signals:  # that came while it was started
                process.send_signal(number)
            status = await process.wait()
            if stopped.is_set() or status in (0, _WRONG):
                return status
            how = f"ended with status {status}"
        if time.monotonic() - began_s > _STEADY_S:
            backoff.reset()
        wait_s = backoff.next_s()
        logger.warning("the agent of %s %s; starting it again in %.1f s", agent.name, how, wait_s)
        await within(wait_s, stopped.wait())
        if stopped.is_set():
            return status


def at_end_of_stdin(call: Callable[[], object]) -> None:
    """Have the running loop make `call` when the process that started this one has ended."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        while os.read(0, 1 << 10):
            pass
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(call)

    threading.Thread(target=watch, daemon=True, name="watch-stdin").start()


def _machine_uuid(data_dir: Path) -> str:
    path = data_dir / _MACHINE_FILE
    try:
        return str(uuid.UUID(path.read_text().strip()))
    except (FileNotFoundError, ValueError):
        fresh = str(uuid.uuid4())
        write_whole(path, fresh.encode())
        return fresh


def _without_token(argv: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--token")
    return parser.parse_known_args(argv)[1]


def _advertised(given: Advertised, number: int) -> str:
    host = bracketed(given.host)
    return f"{host}:{given.port + number}" if given.port else host
