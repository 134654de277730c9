"""A coordinator on a loopback port, its scripted stages, and a client with a key."""

import asyncio
import hashlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from coordinator_doubles import Clock, ScriptedStages, make_dispatcher, make_serving

from runtime.api.access import ApiKeys
from runtime.coordinator.app import PipelineBackend
from runtime.http_process import HttpServer
from runtime.openai_app import assemble

if TYPE_CHECKING:
    from real_stages import RealStages  # imports torch

KEY = "hlxk_secret"
EOS = 257
PATIENCE_S = 90.0


class Rig:
    """A coordinator on a loopback port, its stages, and a client with a key.

    `stages`: those that answer instead of scripted ones.
    """

    def __init__(
        self,
        checkpoint: Path,
        *,
        text: str,
        pages: int,
        stages: "RealStages | None" = None,
        **plan: object,
    ) -> None:
        self.serving = make_serving(checkpoint, **plan)
        self.text = text
        self.stages = stages or ScriptedStages(self._script)
        self.dispatcher, self.stats = make_dispatcher(self.stages, clock=Clock())
        self.dispatcher.serve(self.serving)
        self.stages.report(pages=pages)
        self.may_step = asyncio.Event()
        self.may_step.set()
        self.client: httpx.AsyncClient
        self.url = ""
        self.keys = ApiKeys([hashlib.sha256(KEY.encode()).hexdigest()])
        numbers = itertools.count(1)
        backend = PipelineBackend(
            dispatcher=self.dispatcher,
            unix_time=lambda: 1_700_000_000.0,
            new_answer_id=lambda: f"{next(numbers):04x}",
            new_seed=lambda: 11,
        )
        self.app = assemble(lambda: backend, keys=self.keys, routes=backend.routes)

    def _script(self, prompt: list[int]) -> list[int]:
        return [*self.serving.tokenizer.encode_text(self.text), EOS]

    async def step_forever(self) -> None:
        while True:
            await self.may_step.wait()
            self.stages.step()
            await asyncio.sleep(0.001)

    async def post(self, path: str, **body: object) -> httpx.Response:
        default = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {}
        return await self.client.post(path, json={"model": "tiny"} | default | body)

    async def chat(self, **body: object) -> httpx.Response:
        return await self.post("/v1/chat/completions", **body)

    async def stream(self, **body: object) -> list[dict[str, Any]]:
        """The events of a streamed chat, without the closing [DONE]."""
        response = await self.chat(stream=True, **body)
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a condition of many makings
                await asyncio.sleep(0.002)

    def assert_idle(self) -> None:
        assert self.dispatcher.requests_running == self.dispatcher.requests_waiting == 0
        assert not self.stages.nodes_with_pages


@asynccontextmanager
async def rig(checkpoint: Path, **plan: object) -> AsyncIterator[Rig]:
    text = str(plan.pop("text", "Grüße, 😀!"))
    pages = int(str(plan.pop("pages", 10_000)))
    built = Rig(checkpoint, text=text, pages=pages, **plan)
    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(built.app)
    tasks = [
        asyncio.create_task(server.serve(sockets=[listener])),
        asyncio.create_task(built.step_forever()),
    ]
    built.url = url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=PATIENCE_S
        ) as built.client:
            await built.until(lambda: server.started)
            yield built
    finally:
        server.should_exit = True
        await tasks[0]
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)


def with_coordinator(
    checkpoint: Path, visit: Callable[[Rig], Awaitable[None]], **plan: object
) -> None:
    async def run() -> None:
        async with rig(checkpoint, **plan) as built:
            await visit(built)

    asyncio.run(run())
