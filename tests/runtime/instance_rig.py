"""Instances whose processes are stand-ins for `vllm serve`, looked after while a test asks them."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
from free_port import free_port

from runtime.instances.asking import AskedInstance
from runtime.instances.command_lines import address_of, launch_of
from runtime.instances.health import Condition, Patience
from runtime.instances.instance import SupervisedInstance
from runtime.instances.process import ServerProcess
from runtime.protocol.instances import (
    VllmInstance,
)
from runtime.protocol.trust import issuers

STAND_IN = str(Path(__file__).with_name("stand_in_vllm.py"))
COMMAND = (sys.executable, STAND_IN)
SERVED = "llama"
PATIENCE_S = 90.0
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
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[SupervisedInstance]:
    """Run until the block ends; whatever is left of its process then is killed."""
    process = ServerProcess(directory, name=spec.name)
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=issuers()) as http:
        instance = SupervisedInstance(
            spec.name,
            asked=AskedInstance(
                http, address_of(spec, model_name=SERVED, api_key="k", environment={})
            ),
            launch=launch_of(spec, model_name=SERVED, api_key="k"),
            process=process,
            clock=clock,
            patience=replace(patience, look_every_s=0.05),
            requests_under_way=under_way,
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
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=issuers()) as http:
        return await http.post(
            f"{instance.asked.address.url}{path}",
            json=body,
            headers={"Authorization": f"Bearer {instance.asked.address.api_key}"},
        )
