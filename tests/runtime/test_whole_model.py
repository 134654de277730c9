"""`python -m runtime front` over `serve`, our engine alone, and over a stand-in for vLLM."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import pytest
from coordinator_doubles import Clock, serving_plan
from ended import has_ended
from free_port import free_port

from runtime.coordinator.request_stats import RequestStats
from runtime.instances.engine_load import read_load
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.control import StageStats
from runtime.whole_model.assembly import metrics_page
from runtime.whole_model.main import main

T = TypeVar("T")

KEY = "hlx_key"
PATIENCE_S = 120.0
STAND_IN = str(Path(__file__).with_name("stand_in_vllm.py"))
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0}


def wait_for(condition: Callable[[], T], what: str) -> T:
    """What it is once it is true."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"never came true: {what}"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "tiny"
    make_tiny_checkpoint(path, sizes=TinySizes(num_layers=2), seed=1)
    return path


class Program:
    """`python -m runtime ...` and a client of it."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.port = free_port()
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime", *arguments, "--port", str(self.port)],
            env={**os.environ, "HELIX_API_KEY": KEY, "OMP_NUM_THREADS": "1"},
            stderr=self._log,
        )
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=PATIENCE_S,
            trust_env=False,
        )

    def health(self) -> Any:
        with contextlib.suppress(httpx.HTTPError):
            return self.http.get("/health").json()
        return {}

    def instance(self, name: str) -> Any:
        """What it says of that one; nothing where it says nothing now."""
        return self.health().get("instances", {}).get(name, {})

    def ask(self, body: dict[str, Any]) -> httpx.Response:
        return self.http.post("/v1/chat/completions", json=body)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.stop()
        self._log.close()


@contextmanager
def program(*arguments: str, log: Path) -> Iterator[Program]:
    running = Program(*arguments, log=log)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.processes
def test_a_front_over_our_engine_and_a_stand_in_routes_watches_and_drains(
    checkpoint: Path, tmp_path: Path
) -> None:
    ports = free_port(), free_port()
    instances = [
        {
            "backend": "helix",
            "name": "ours",
            "port": ports[0],
            "checkpoint": str(checkpoint),
            "memory_budget_bytes": 64 << 20,
        },
        {
            "backend": "vllm",
            "name": "theirs",
            "port": ports[1],
            "gpus": [0],
            "model": "m:step_s=0.002",
            "command": [sys.executable, STAND_IN],
        },
        {"backend": "url", "name": "away", "url": f"http://127.0.0.1:{free_port()}", "model": "m"},
    ]
    file = tmp_path / "instances.json"
    hashes = [hashlib.sha256(KEY.encode()).hexdigest()]
    told = {"model_name": "tiny", "instances": instances, "router": "round_robin"}
    file.write_text(json.dumps({**told, "api_key_hashes": hashes}))
    arguments = ("front", "--instances", str(file), "--data-dir", str(tmp_path / "data"))
    with program(*arguments, log=tmp_path / "front.log") as front:
        first = 0  # process of theirs

        def conditions() -> dict[str, str]:
            told = front.health().get("instances", {})
            return {name: one["condition"] for name, one in told.items()}

        def pid_of_theirs() -> int:
            with contextlib.suppress(OSError, ValueError):  # between one and the next
                return int(json.loads((tmp_path / "data" / "theirs.pid").read_text())["pid"])
            return first

        def end_of_ours() -> Any:
            """That it waits to be begun again, for longer each time that its stage is killed."""
            told = front.instance("ours")
            if told.get("condition") == "ready":
                for one in psutil.Process(front.process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if one.cmdline()[-1:] == ["stage"]:
                            one.kill()
            return told if told.get("condition") == "waiting" else None

        both = {"ours": "ready", "theirs": "ready", "away": "starting"}
        wait_for(lambda: conditions() == both, "both are ready")
        answered = [front.ask({"model": "tiny", **CHAT}) for _ in range(4)]
        assert [one.headers["x-helix-instance"] for one in answered] == ["ours", "theirs"] * 2
        assert {one.json()["model"] for one in answered} == {"tiny"}
        extra = {"store": True, "ignore_eos": True, "min_tokens": 6}
        for stream in (False, True):
            asked = {"model": "tiny", **CHAT, **extra, "stream": stream}
            answers = [front.ask(asked) for _ in range(4)]
            by_instance = {one.headers["x-helix-instance"]: one for one in answers}
            ours, theirs = by_instance["ours"], by_instance["theirs"]
            assert ours.headers["x-helixweb-ignored"] == "store"
            assert "x-helixweb-ignored" not in theirs.headers
            if not stream:
                assert ours.json()["usage"]["completion_tokens"] == 6
        passed_on = httpx.get(f"http://127.0.0.1:{ports[1]}/asked", trust_env=False).json()
        assert extra.items() <= passed_on[-1].items()
        first = pid_of_theirs()
        os.kill(first, signal.SIGKILL)
        for _ in range(4):  # whether that was noticed or not
            assert front.ask({"model": "tiny", **CHAT}).status_code == 200
        wait_for(lambda: conditions() == both and pid_of_theirs() != first, "it is back")
        wait_for(lambda: front.instance("ours").get("kv_usage") == 0, "its pages are given back")
        wait_for(lambda: front.instance("ours").get("complaint") == "", "its metrics are read")
        message = wait_for(end_of_ours, "its end is noticed")["message"]
        assert message.startswith("exited with status 1; its log ends: ")
        assert "tiny is served no more: the stage was killed by signal 9" in message
        children = psutil.Process(front.process.pid).children(recursive=True)
        assert front.stop() == 0
        wait_for(lambda: all(map(has_ended, children)), "nothing is left of it")
    assert "instance theirs is waiting: killed by signal 9" in (tmp_path / "front.log").read_text()


def test_what_cannot_be_served_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELIX_API_KEY", raising=False)
    assert main(["--checkpoint", str(tmp_path)]) == 2
    assert "set HELIX_API_KEY" in capsys.readouterr().err
    monkeypatch.setenv("HELIX_API_KEY", KEY)
    assert main(["--checkpoint", str(tmp_path), "--port", "0"]) == 2
    assert "config.json does not exist" in capsys.readouterr().err
    config = {"model_type": "llama", "num_hidden_layers": "many"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["--checkpoint", str(tmp_path), "--port", "0"]) == 2
    assert "num_hidden_layers is 'many'" in capsys.readouterr().err


def test_the_metrics_page_is_one_that_we_read_ourselves() -> None:
    stage = StageStats(
        kv_pages_total=600,
        kv_pages_used=150,
        sequences=3,
        steps_total=1,
        prompt_tokens_total=1,
        decode_tokens_total=1,
        busy_s_total=1,
        uptime_s=1,
        weights_bytes=1,
        kv_bytes=1,
    )
    stats = RequestStats(window_s=10.0, clock=Clock())
    plan = serving_plan(Path("model"), model_name='a "b"\\\n', page_tokens=16)
    told = {"plan": plan, "running": 3, "waiting": 2}
    page = metrics_page(stats, **told, stage=stage).decode()  # type: ignore[arg-type]
    load = read_load(page)
    assert (load.running, load.waiting, load.kv_usage) == (3, 2, 0.25)
    assert load.kv_room_tokens == 1600
    assert "vllm:time_to_first_token_seconds_bucket" in page
    page = metrics_page(stats, **told, stage=None).decode()  # type: ignore[arg-type]
    load = read_load(page)
    assert load.running == 3
    assert load.kv_usage is None
