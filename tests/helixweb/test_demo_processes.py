"""How the demo ends its processes: Ctrl-C is not a matter of a quarter of a minute."""

import sys
import time
from pathlib import Path

from helixweb.demo.__main__ import numbers_of
from helixweb.demo.processes import STOP_TIMEOUT_S, Processes, Running

PATIENCE_S = 300.0
BUSY = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGQUIT, lambda *_: sys.exit(7))
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def started(processes: Processes, up: Path, *, gives_up_at_quit: bool) -> Running:
    command = [sys.executable, "-c", BUSY, str(up)]
    running = processes.start("worker", command, gives_up_at_quit=gives_up_at_quit)
    deadline = time.monotonic() + PATIENCE_S
    while not up.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return running


def test_a_worker_that_is_busy_is_made_to_give_up(tmp_path: Path) -> None:
    assert STOP_TIMEOUT_S > 5
    with Processes(log_dir=tmp_path, cwd=tmp_path, env={}) as processes:
        worker = started(processes, tmp_path / "up", gives_up_at_quit=True)
    assert worker.process.returncode == 7


def test_it_prints_the_numbers_by_which_agents_can_be_ended(tmp_path: Path) -> None:
    with Processes(log_dir=tmp_path, cwd=tmp_path, env={}) as processes:
        agents = {name: processes.start(name, ["sleep", "600"]) for name in ("tower", "mini")}
        told = numbers_of(agents)
    tower, mini = (agents[name].process.pid for name in ("tower", "mini"))
    assert told == f"tower {tower}, mini {mini}"
