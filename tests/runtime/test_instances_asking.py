"""What an instance answers when it is asked how it is, however it goes about it."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx
import pytest
from instance_rig import wait_until

from runtime.instances.asking import AskedInstance
from runtime.instances.command_lines import Launch
from runtime.instances.engine_load import EngineLoad
from runtime.instances.health import Patience
from runtime.instances.instance import SupervisedInstance, look_after
from runtime.instances.process import ServerProcess
from runtime.protocol.instance_orders import InstanceAddress

ADDRESS = InstanceAddress(url="http://engine", model="m")
PATIENCE_S = 90


class Drops(httpx.AsyncByteStream):
    """An answer in small pieces, with a while between them; without end."""

    def __init__(self, drop: bytes, *, pause_s: float) -> None:
        self._drop = drop
        self._pause_s = pause_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in itertools.count():
            await asyncio.sleep(self._pause_s)
            yield self._drop


def asked(drops: Drops) -> tuple[str, EngineLoad]:
    async def test() -> tuple[str, EngineLoad]:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=drops))
        async with httpx.AsyncClient(transport=transport, timeout=PATIENCE_S) as http:
            return await AskedInstance(http, ADDRESS).trouble(), await AskedInstance(
                http, ADDRESS
            ).load()

    return asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


def test_an_answer_that_comes_drop_by_drop_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.instances.asking.PROBE_TIMEOUT_S", 0.05)
    trouble, load = asked(Drops(b"x", pause_s=0.01))
    assert trouble == "it does not answer: /health is not answered whole within 0.05 s"
    assert load.complaint == "/metrics is not answered whole within 0.05 s"


def test_an_error_without_a_message_is_named_by_its_kind() -> None:
    async def test() -> str:
        def late(request: httpx.Request) -> httpx.Response:
            raise httpx.ReadTimeout("", request=request)

        async with httpx.AsyncClient(transport=httpx.MockTransport(late)) as http:
            return await AskedInstance(http, ADDRESS).trouble()

    assert asyncio.run(test()) == "it does not answer: ReadTimeout"


def test_an_answer_without_end_is_too_much() -> None:
    trouble, load = asked(Drops(b"x" * (1 << 20), pause_s=0))
    assert trouble == "it does not answer: /health answers more than 4194304 bytes"
    assert load.complaint == "/metrics answers more than 4194304 bytes"


class Process:
    """One that runs from its start until it is asked to end."""

    def __init__(self, *, terminated: Callable[[], None]) -> None:
        self.is_running = False
        self.last_words = self.first_error = ""
        self._terminated = terminated

    def take_end(self) -> str | None:
        return None

    async def start(self, launch: Launch) -> None:
        self.is_running = True

    async def gone(self) -> None:
        await asyncio.Event().wait()

    def terminate(self) -> None:
        self._terminated()


def test_metrics_that_are_silent_for_a_moment_do_not_end_a_drain() -> None:
    said = {"metrics": "vllm:num_requests_running 1\n"}
    asked_in_vain: list[str] = []
    ended = asyncio.Event()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": ADDRESS.model}]})
        if request.url.path != "/metrics":
            return httpx.Response(200)
        if said["metrics"]:
            return httpx.Response(200, text=said["metrics"])
        asked_in_vain.append(request.url.path)
        if len(asked_in_vain) == 3:
            said["metrics"] = "vllm:num_requests_running 0\n"
        return httpx.Response(500)

    async def test() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            instance = SupervisedInstance(
                "one",
                asked=AskedInstance(http, ADDRESS),
                launch=Launch(argv=()),
                process=cast(ServerProcess, Process(terminated=ended.set)),
                clock=lambda: 0.0,
                patience=Patience(look_every_s=0),
                requests_under_way=lambda: 0,
            )
            running = asyncio.create_task(instance.run())
            await wait_until(lambda: instance.load.running == 1)
            said["metrics"] = ""
            stopping = asyncio.create_task(instance.stop())
            await ended.wait()
            for task in (running, stopping):
                task.cancel()
            await asyncio.gather(running, stopping, return_exceptions=True)

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))
    assert len(asked_in_vain) == 3


class Stumbles:
    """An instance that cannot be looked after once, and then is."""

    def __init__(self) -> None:
        self.begun = 0
        self.runs = asyncio.Event()

    async def run(self) -> None:
        self.begun += 1
        if self.begun == 1:
            raise RuntimeError("no more file descriptors")
        self.runs.set()
        await asyncio.Event().wait()


def test_what_goes_wrong_once_is_told_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        instance = Stumbles()
        looking = asyncio.create_task(look_after("one", instance, again_s=0))  # type: ignore[arg-type]
        await asyncio.wait_for(instance.runs.wait(), PATIENCE_S)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        assert instance.begun == 2

    asyncio.run(test())
    assert "instance one could not be looked after" in caplog.text
    assert "no more file descriptors" in caplog.text
