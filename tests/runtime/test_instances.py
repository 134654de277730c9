"""Instances as processes: a stand-in for `vllm serve` is started, asked, drained and ended."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from free_port import free_port

from runtime.instances.asking import ask_health
from runtime.instances.command_lines import Door, Launch, door_of, launch_of
from runtime.instances.health import Condition, Patience
from runtime.instances.instance import SupervisedInstance, WatchedInstance
from runtime.instances.process import ServerProcess
from runtime.protocol.instances import (
    HelixInstance,
    InstanceSet,
    InstancesRefused,
    TransformersInstance,
    UrlInstance,
    VllmInstance,
    read_instances,
)

STAND_IN = str(Path(__file__).with_name("stand_in_vllm.py"))
COMMAND = (sys.executable, STAND_IN)
SERVED = "llama"
PATIENCE_S = 30.0
PATIENCE = Patience(start_s=20, unwell_s=0.3, drain_s=20, stop_s=0.5, first_retry_s=0.05)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def wait_until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "what is waited for never came true"
        await asyncio.sleep(0.02)


def vllm(model: str = "m", **changes: object) -> VllmInstance:
    fields = {"backend": "vllm", "name": "one", "model": model, "port": free_port(), "gpus": (0,)}
    return VllmInstance.model_validate({**fields, "command": COMMAND, **changes})


@asynccontextmanager
async def supervised(
    directory: Path,
    spec: VllmInstance,
    *,
    patience: Patience = PATIENCE,
    under_way: Callable[[], int] = lambda: 0,
) -> AsyncIterator[SupervisedInstance]:
    """Run until the block ends; whatever is left of its process then is killed."""
    process = ServerProcess(directory, name=spec.name)
    async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
        instance = SupervisedInstance(
            spec.name,
            door=door_of(spec, model_name=SERVED, api_key="k", environment={}),
            launch=launch_of(spec, model_name=SERVED, api_key="k"),
            process=process,
            http=http,
            clock=time.monotonic,
            patience=patience,
            requests_under_way=under_way,
            look_every_s=0.05,
        )
        running = asyncio.create_task(instance.run())
        try:
            yield instance
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            process.kill()
            await process.gone()


async def becomes(instance: SupervisedInstance, condition: Condition) -> None:
    await wait_until(lambda: instance.state.condition is condition)


def process_of(directory: Path) -> psutil.Process:
    return psutil.Process(json.loads((directory / "one.pid").read_text())["pid"])


async def ask(instance: SupervisedInstance, path: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
        return await http.post(
            f"{instance.door.url}{path}",
            json=body,
            headers={"Authorization": f"Bearer {instance.door.api_key}"},
        )


def test_the_command_line_of_vllm_has_what_it_needs_and_no_secret() -> None:
    spec = vllm(
        "/models/llama",
        gpus=(2, 3),
        tensor_parallel=2,
        max_context_tokens=8192,
        gpu_memory_utilization=0.85,
        extra_arguments=("--enforce-eager",),
        command=("vllm",),
        port=8001,
    )
    launch = launch_of(spec, model_name="llama", api_key="secret")
    assert " ".join(launch.argv) == (
        "vllm serve /models/llama --host 127.0.0.1 --port 8001 --served-model-name llama "
        "--tensor-parallel-size 2 --gpu-memory-utilization 0.85 --max-model-len 8192 "
        "--enforce-eager"
    )
    assert launch.environment == {"CUDA_VISIBLE_DEVICES": "2,3", "VLLM_API_KEY": "secret"}
    assert "secret" not in repr(launch)


def test_the_other_backends_are_told_to_listen_on_loopback_too() -> None:
    theirs = TransformersInstance(
        backend="transformers", name="t", model="/m", port=9000, device="cpu"
    )
    launch = launch_of(theirs, model_name="llama", api_key="secret")
    assert " ".join(launch.argv) == (
        "transformers serve /m --host 127.0.0.1 --port 9000 --device cpu"
    )
    assert not launch.environment
    door = door_of(theirs, model_name="llama", api_key="secret", environment={})
    assert (door.model, door.api_key, door.has_metrics) == ("/m", "", False)
    ours = HelixInstance(
        backend="helix",
        name="h",
        checkpoint="/m",
        memory_budget_bytes=1 << 30,
        port=9001,
        relative_speed=0.5,
    )
    launch = launch_of(ours, model_name="llama", api_key="secret")
    assert launch.argv[1:5] == ("-m", "runtime", "serve", "--checkpoint")
    assert "--host 127.0.0.1 --port 9001 --model-name llama" in " ".join(launch.argv)
    assert "secret" not in " ".join(launch.argv)
    url = UrlInstance(
        backend="url", name="u", url="https://x/v1", model="gpt", api_key_env="THEIR_KEY"
    )
    door = door_of(url, model_name="llama", api_key="no", environment={"THEIR_KEY": "theirs"})
    assert (door.url, door.model, door.api_key) == ("https://x", "gpt", "theirs")


WHOLE = {
    "model_name": "llama",
    "api_key_hashes": ["0" * 64],
    "instances": [
        {"backend": "vllm", "name": "a", "model": "m", "port": 1, "gpus": [0]},
        {"backend": "url", "name": "b", "url": "http://b", "model": "m"},
    ],
}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"gpus": [0, 1, 2], "tensor_parallel": 2}, "3 GPUs for a tensor-parallel degree of 2"),
        ({"gpus": [1, 1], "tensor_parallel": 2}, "names a GPU twice"),
        ({"name": "b"}, "the name 'b' is given to two instances"),
        ({"name": "../../etc"}, "instances.0.vllm.name"),
        ({"backend": "tgi"}, "instances.0"),
        ({"tensor_paralel": 2}, "instances.0.vllm.tensor_paralel"),
        ({"times": {"prefill": [0, 0, 0, -1], "decode": [0, 0, 0, 1]}}, "prefill.3"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_naming_what_is_wrong(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    first, second = WHOLE["instances"]
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(WHOLE))
    assert [one.name for one in read_instances(path).instances] == ["a", "b"]
    path.write_text(json.dumps({**WHOLE, "instances": [{**first, **changes}, second]}))
    with pytest.raises(InstancesRefused, match=r"instances\.json") as refused:
        read_instances(path)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["http://h:abc", "http://h:999999", "http://h:0", "http://[::1", "http://:80", "http://a b"],
)
def test_an_address_that_is_none_is_refused_when_it_is_read(url: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        UrlInstance(backend="url", name="u", url=url, model="m")


def test_gpus_and_ports_belong_to_one_instance_each() -> None:
    first, _ = WHOLE["instances"]
    for changes, what in (({"port": 2}, "GPU 0"), ({"gpus": [1]}, "port 1")):
        twins = [first, {**first, "name": "c", **changes}]
        with pytest.raises(ValueError, match=what):
            InstanceSet.model_validate({**WHOLE, "instances": twins})


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_it_is_started_asked_and_its_metrics_are_read_whatever_its_version(
    tmp_path: Path, version: str
) -> None:
    async def test() -> None:
        async with supervised(tmp_path, vllm(f"m:metrics={version}")) as instance:
            await becomes(instance, Condition.READY)
            assert instance.load.kv_room_tokens == 4096
            assert instance.load.kv_usage == 0
            answer = await ask(
                instance, "/v1/completions", {"model": SERVED, "prompt": "x", "max_tokens": 3}
            )
            assert answer.json()["choices"][0]["text"] == "w0 w1 w2 "
            await instance.stop()
            assert instance.state.condition is Condition.IDLE
            assert not (tmp_path / "one.pid").exists()

    run(test())
    assert "INFO: serving m:metrics" in (tmp_path / "one.log").read_text()


def test_metrics_of_a_version_nobody_knows_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with supervised(tmp_path, vllm("m:metrics=v9")) as instance:
            await becomes(instance, Condition.READY)
            assert instance.load.kv_usage is None
            before = instance.load
            for _ in range(2):
                seen = instance.load
                await wait_until(lambda seen=seen: instance.load is not seen)
            assert instance.load == before

    run(test())
    told = [record for record in caplog.records if "vllm:kv_cache_usage_perc" in record.message]
    assert len(told) == 1


def test_one_that_dies_at_once_is_told_with_its_last_words_and_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path, vllm("m:mode=dies")) as instance:
            await wait_until(lambda: instance.state.failures >= 2)
            assert "exited with status 1; its log ends: " in instance.state.message
            assert "Engine core initialization failed" in instance.state.message
            assert "verysecret" not in instance.state.message

    run(test())


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        spec = vllm(command=("/nowhere/vllm",))
        async with supervised(tmp_path, spec) as instance:
            await becomes(instance, Condition.WAITING)
            assert "'/nowhere/vllm' cannot be started" in instance.state.message

    run(test())


def test_one_that_never_gets_healthy_is_ended_and_told(tmp_path: Path) -> None:
    async def test() -> None:
        patience = Patience(start_s=0.5, stop_s=1, first_retry_s=30)
        spec = vllm("m:mode=never_healthy")
        async with supervised(tmp_path, spec, patience=patience) as instance:
            await becomes(instance, Condition.WAITING)
            assert "not well 0.5 s after its start (/health answers 503)" in instance.state.message
            assert "INFO: serving" in instance.state.message

    run(test())


def test_one_that_is_killed_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path, vllm()) as instance:
            await becomes(instance, Condition.READY)
            first = process_of(tmp_path)
            os.kill(first.pid, signal.SIGKILL)
            await wait_until(lambda: instance.state.failures == 1)
            await becomes(instance, Condition.READY)
            assert process_of(tmp_path).pid != first.pid

    run(test())


def test_one_whose_health_stays_bad_is_replaced(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path, vllm()) as instance:
            await becomes(instance, Condition.READY)
            await ask(instance, "/behave", {"mode": "never_healthy"})
            first = process_of(tmp_path)
            await becomes(instance, Condition.UNWELL)
            await wait_until(lambda: instance.state.failures == 1)
            await becomes(instance, Condition.READY)
            assert process_of(tmp_path).pid != first.pid

    run(test())


def test_it_is_not_ended_before_its_last_answer_is_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path, vllm("m:step_s=0.02")) as instance:
            await becomes(instance, Condition.READY)
            body = {"model": SERVED, "prompt": "x", "max_tokens": 30}
            asked = asyncio.create_task(ask(instance, "/v1/completions", body))
            await wait_until(lambda: instance.load.running == 1)
            await instance.stop()
            assert (await asked).json()["choices"][0]["text"].endswith("w29 ")

    run(test())


def test_requests_sent_from_here_keep_it_from_ending_also_if_its_metrics_say_nothing(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        under_way = 1
        spec = vllm("m:metrics=v9")
        async with supervised(tmp_path, spec, under_way=lambda: under_way) as instance:
            await becomes(instance, Condition.READY)
            stopping = asyncio.create_task(instance.stop())
            await becomes(instance, Condition.DRAINING)
            seen = instance.load
            await wait_until(lambda: instance.load is not seen)
            assert not stopping.done()
            under_way = 0
            await stopping

    run(test())


def test_one_that_ignores_being_asked_to_end_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with supervised(tmp_path, vllm("m:mode=stubborn")) as instance:
            await becomes(instance, Condition.READY)
            process = process_of(tmp_path)
            await instance.stop()
            assert not process.is_running()

    run(test())


def test_what_an_earlier_life_left_running_is_ended_first(tmp_path: Path) -> None:
    async def test() -> None:
        spec = vllm()
        left = ServerProcess(tmp_path, name="one")
        await left.start(launch_of(spec, model_name=SERVED, api_key="old"))
        process = process_of(tmp_path)
        async with supervised(tmp_path, spec) as instance:
            await becomes(instance, Condition.READY)
            assert not process.is_running()
        await left.gone()

    run(test())


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
        await wait_until(lambda: _has_ended(int(child)))

    run(test())


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("url", ["http://:x", "http://127.0.0.1:1", "http://no.such.host.invalid"])
def test_an_address_where_nobody_answers_is_a_trouble_to_tell(url: str) -> None:
    async def test() -> None:
        async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
            probe = await ask_health(http, Door(url=url, model="m"))
        assert probe.trouble.startswith("it does not answer: ")

    run(test())


def test_a_server_of_others_is_asked_and_never_touched(tmp_path: Path) -> None:
    async def test() -> None:
        spec = vllm()
        async with (
            supervised(tmp_path, spec) as theirs,
            httpx.AsyncClient(timeout=5, trust_env=False) as http,
        ):
            await becomes(theirs, Condition.READY)
            door = door_of(
                UrlInstance(
                    backend="url", name="u", url=theirs.door.url, model=SERVED, api_key_env="K"
                ),
                model_name="other",
                api_key="",
                environment={"K": "k"},
            )
            watched = WatchedInstance(
                "u",
                door=door,
                http=http,
                clock=time.monotonic,
                patience=PATIENCE,
                look_every_s=0.05,
            )
            running = asyncio.create_task(watched.run())
            await wait_until(lambda: watched.state.condition is Condition.READY)
            await wait_until(lambda: watched.load.kv_room_tokens == 4096)
            await watched.stop()
            await ask(theirs, "/behave", {"mode": "never_healthy"})
            await wait_until(lambda: watched.state.condition is Condition.UNWELL)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    run(test())
