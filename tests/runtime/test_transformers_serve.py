"""`transformers serve` itself, as installed, behind what starts, asks and relays."""

import asyncio
import json
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_port import free_port

from runtime.api.events import usage_of
from runtime.front.asked import Asked, Endpoint, read_asked
from runtime.front.target import InstanceTarget, Refused
from runtime.instances.asking import AskedInstance
from runtime.instances.command_lines import address_of, launch_of
from runtime.instances.health import Condition, Patience
from runtime.instances.instance import SupervisedInstance
from runtime.instances.process import ServerProcess
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.instances import TransformersInstance

PATIENCE_S = 300.0  # it imports much; a bound on hanging, not a measurement
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


@pytest.mark.processes
@pytest.mark.long  # for real; elsewhere a stand-in answers
def test_transformers_serve_is_started_asked_relayed_and_ended(tmp_path: Path) -> None:
    make_tiny_checkpoint(tmp_path / "tiny", sizes=TinySizes(num_layers=2), seed=1)
    spec = TransformersInstance(
        backend="transformers",
        name="theirs",
        model=str(tmp_path / "tiny"),
        port=free_port(),
        device="cpu",
        command=(str(Path(sys.executable).with_name("transformers")),),
    )

    async def test() -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
            process = ServerProcess(tmp_path, name=spec.name)
            address = address_of(spec, model_name="m", api_key="k", environment={})
            instance = SupervisedInstance(
                spec.name,
                asked=AskedInstance(http, address),
                launch=launch_of(spec, model_name="m", api_key="k"),
                process=process,
                clock=time.monotonic,
                patience=Patience(start_s=PATIENCE_S),
                requests_under_way=lambda: 0,
            )
            running = asyncio.create_task(instance.run())
            try:
                while instance.state.condition is not Condition.READY:
                    assert instance.state.failures == 0, instance.state.message
                    await asyncio.sleep(0.1)
                await _asks(http, instance)
                await instance.stop()
                assert not process.is_running
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                process.kill()
                await process.gone()

    asyncio.run(test())


async def _asks(http: httpx.AsyncClient, instance: SupervisedInstance) -> None:
    whole = await _whole(http, instance, _asked("/v1/chat/completions", CHAT))
    usage = usage_of(whole)
    assert usage is not None
    assert usage[1] == 5
    assert whole["choices"][0]["finish_reason"] == "length"
    for asked in (
        _asked("/v1/chat/completions", {**CHAT, "stream": True}),
        _asked("/v1/completions", {"prompt": "hello", "max_tokens": 5, "stream": True}),
    ):
        target = InstanceTarget(http, instance.asked.address)
        async with aclosing(target.stream(asked, passed_on={})) as stream:
            events = [event async for event in stream]
        assert events[-1].is_done  # which it does not say itself
        assert sum(event.finished for event in events) == 1
        assert events[-2].usage is not None
        assert events[-2].usage[1] == 5
    with pytest.raises(Refused) as refused:
        await _whole(http, instance, _asked("/v1/completions", {"prompt": [1, 2]}))
    assert b"prompt must be a string" in refused.value.content


async def _whole(
    http: httpx.AsyncClient, instance: SupervisedInstance, asked: Asked
) -> dict[str, Any]:
    target = InstanceTarget(http, instance.asked.address)
    return await target.whole(asked, patience_s=PATIENCE_S, passed_on={})


def _asked(endpoint: Endpoint, body: dict[str, Any]) -> Asked:
    return read_asked(endpoint, json.dumps({"model": "m", **body}).encode(), model_name="m")
