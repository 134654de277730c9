"""The process of an instance: what it is started with, and how its end is seen."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from ended import has_ended
from instance_rig import PATIENCE_S, SERVED, run, vllm, wait_until

from runtime.instances.command_lines import Launch, launch_of
from runtime.instances.process import ServerProcess
from runtime.protocol.instances import VllmInstance

pytestmark = pytest.mark.processes


def test_a_number_that_is_another_process_by_now_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "one.pid").write_text(json.dumps({"pid": os.getppid(), "born": 1.0}))

    async def test() -> None:
        process = ServerProcess(tmp_path, name="one")
        await process.start(Launch(argv=(sys.executable, "-c", "print('hello')")))
        await process.gone()
        assert process.take_end() == "exited with status 0"
        assert process.take_end() is None

    run(test())
    assert psutil.pid_exists(os.getppid())


def test_a_server_whose_number_cannot_be_kept_is_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "one.pid").mkdir()  # as a full disk: nothing can be written there

    async def test() -> None:
        process = ServerProcess(tmp_path, name="one")
        await process.start(Launch(argv=(sys.executable, "-c", "print('hello')")))
        await process.gone()
        assert process.take_end() == "exited with status 0"
        assert process.last_words == "hello"

    run(test())


def test_a_server_gets_what_it_needs_of_the_environment_and_no_secret_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {
        "CUDA_HOME": "/cuda",
        "LC_ALL": "C",
        "DATABASE_URL": "postgres://u:p@h/d",
        "HELIX_API_KEY": "ours",
        "HF_HOME": "/hf",
        "HF_TOKEN": "hf_1",
        "OPENAI_API_KEY": "sk-1",
        "VLLM_API_KEY": "of another",
    }
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    spec = vllm(
        command=(sys.executable, "-c", "import os, json; print(json.dumps({**os.environ}))")
    )
    asked = spec.model_copy(update={"pass_environment": ("HF_TOKEN",)})

    async def seen(spec: VllmInstance) -> dict[str, str]:
        process = ServerProcess(tmp_path, name="one")
        await process.start(launch_of(spec, model_name=SERVED, api_key="k"))
        await process.gone()
        line = (tmp_path / "one.log").read_text().splitlines()[-1]
        return {name: value for name, value in json.loads(line).items() if name in ours}

    expected = {"CUDA_HOME": "/cuda", "LC_ALL": "C", "HF_HOME": "/hf", "VLLM_API_KEY": "k"}
    assert asyncio.run(seen(spec)) == expected
    assert asyncio.run(seen(asked)) == {**expected, "HF_TOKEN": "hf_1"}


def test_a_variable_of_this_process_comes_before_a_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    spec = vllm(
        cpu_threads=2,
        command=(sys.executable, "-c", "import os, json; print(json.dumps({**os.environ}))"),
    )

    async def test() -> None:
        process = ServerProcess(tmp_path, name="one")
        await process.start(launch_of(spec, model_name=SERVED, api_key="k"))
        await process.gone()
        seen = json.loads((tmp_path / "one.log").read_text().splitlines()[-1])
        assert seen["OMP_NUM_THREADS"] == "5"
        assert seen["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"

    run(test())


BAR = """
import time
print("Loading 10%", end="\\r")
print("Loading 40%", end="\\r", flush=True)
time.sleep(3600)
"""


def test_what_a_bar_of_progress_writes_is_read_as_it_comes(tmp_path: Path) -> None:
    async def test() -> None:
        process = ServerProcess(tmp_path, name="one")
        await process.start(Launch(argv=(sys.executable, "-c", BAR)))
        try:
            await wait_until(lambda: process.said.progress == 0.4)
        finally:
            process.kill()
            await process.gone()

    run(test())


LEADER = """
import subprocess, sys
child = subprocess.Popen(["sleep", "3600"], start_new_session=sys.argv[1] == "away")
print(child.pid, flush=True)
sys.exit("out of memory")
"""


@pytest.mark.parametrize("where", ["here", "away"])
def test_the_end_of_a_leader_is_seen_while_its_children_hold_its_output(
    tmp_path: Path, where: str
) -> None:
    async def test() -> None:
        process = ServerProcess(tmp_path, name="one")
        await process.start(Launch(argv=(sys.executable, "-c", LEADER, where)))
        await asyncio.wait_for(process.gone(), PATIENCE_S)
        child, words = process.last_words.split("\n")
        assert words == "out of memory"
        assert process.take_end() == "exited with status 1"
        if where == "away":  # it is in no session of ours
            os.kill(int(child), signal.SIGKILL)
        await wait_until(lambda: has_ended(int(child)))

    run(test())
