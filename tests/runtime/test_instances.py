"""Instances as processes: a stand-in for `vllm serve` is started, asked, drained and ended."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from instance_rig import (
    PATIENCE,
    PATIENCE_S,
    SERVED,
    ask,
    becomes,
    process_of,
    run,
    supervised,
    vllm,
    wait_until,
)

from runtime.instances.asking import AskedInstance
from runtime.instances.command_lines import address_of, launch_of
from runtime.instances.health import Condition, Patience
from runtime.instances.instance import Instance
from runtime.instances.process import ServerProcess
from runtime.protocol.instance_orders import InstanceAddress
from runtime.protocol.instances import UrlInstance

pytestmark = pytest.mark.processes


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
            why = "exited with status 1: RuntimeError: Engine core initialization failed"
            assert why in instance.state.message  # while it starts again, too
            await wait_until(lambda: "; its log ends: " in instance.state.message)
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
        now_s = 0.0
        patience = Patience(start_s=0.5, stop_s=1, first_retry_s=30)
        spec = vllm("m:mode=never_healthy")
        async with supervised(tmp_path, spec, patience=patience, clock=lambda: now_s) as instance:
            await wait_until(lambda: "503" in instance.state.message)
            await wait_until(lambda: "INFO: serving" in (tmp_path / "one.log").read_text())
            assert instance.state.condition is Condition.STARTING
            now_s = 1.0
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
        patience = replace(PATIENCE, drain_s=PATIENCE_S)
        async with supervised(tmp_path, vllm("m:mode=writes"), patience=patience) as instance:
            await becomes(instance, Condition.READY)
            body = {"model": SERVED, "prompt": "x", "max_tokens": 30}
            asked = asyncio.create_task(ask(instance, "/v1/completions", body))
            await wait_until(lambda: instance.load.running == 1)
            stopping = asyncio.create_task(instance.stop())
            await becomes(instance, Condition.DRAINING)
            seen = instance.load
            await wait_until(lambda: instance.load is not seen)
            assert not stopping.done()
            await ask(instance, "/behave", {"mode": "well"})
            assert (await asked).json()["choices"][0]["text"].endswith("w29 ")
            await stopping

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


@pytest.mark.parametrize(
    "url", ["http://:x", "http://127.0.0.1:1", "http://no.such.host.invalid", "http://xn--"]
)
def test_an_address_where_nobody_answers_is_a_trouble_to_tell(url: str) -> None:
    async def test() -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
            trouble = await AskedInstance(http, InstanceAddress(url=url, model="m")).trouble()
        assert trouble.startswith("it does not answer: ")

    run(test())


def test_a_server_of_others_is_asked_and_never_touched(tmp_path: Path) -> None:
    async def test() -> None:
        spec = vllm()
        for_ever = replace(PATIENCE, unwell_s=2 * PATIENCE_S)
        async with (
            supervised(tmp_path, spec, patience=for_ever) as theirs,
            httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http,
        ):
            await becomes(theirs, Condition.READY)
            address = address_of(
                UrlInstance(
                    backend="url",
                    name="u",
                    url=theirs.asked.address.url,
                    model=SERVED,
                    api_key_env="K",
                ),
                model_name="other",
                api_key="",
                environment={"K": "k"},
            )
            watched = Instance(
                "u",
                probed=AskedInstance(http, address),
                clock=time.monotonic,
                patience=PATIENCE,
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
