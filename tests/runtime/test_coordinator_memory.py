"""What a request leaves behind in the coordinator: nothing, however it ended. Counted in blocks of
Python's allocator, after everything that is bounded is full."""

import asyncio
import contextlib
import gc
import hashlib
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coordinator_doubles import (
    Clock,
    ScriptedStages,
    make_dispatcher,
    make_serving,
    write_checkpoint,
)

from runtime.api.access import ApiKeys
from runtime.coordinator.app import PipelineBackend
from runtime.openai_app import assemble

KEY = "hlxk_secret"
FIRST, MORE = 250, 500  # requests

# What is asked, and how: each is one kind of client.
NONSENSE = [
    b"",
    b"\xff{}",
    b'{"model": "other", "prompt": [5]}',
    b'{"model": "tiny", "prompt": []}',
]


def asked(number: int) -> tuple[bytes, bool, bool]:
    """The body of a request, whether its key is known, whether its client leaves at once."""
    if number % 5 == 0:
        return NONSENSE[number // 5 % len(NONSENSE)], number % 10 == 0, False
    prompt = [5 + (number * step) % 200 for step in range(1, 12)]
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1 + number % 9}
    return json.dumps(body | {"stream": number % 2 == 0}).encode(), True, number % 3 == 0


class Clients:
    """Ask an app without a socket in between."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app
        self._numbers = itertools.count(1)
        self.statuses: set[int] = set()

    async def ask(self, count: int) -> None:
        for _ in range(count // 10):
            await asyncio.gather(*(self._one(next(self._numbers)) for _ in range(10)))

    async def _one(self, number: int) -> None:
        body, has_key, leaves = asked(number)
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            part = next(parts, None)
            if part is None:
                await gone.wait()
                return {"type": "http.disconnect"}
            return part

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.statuses.add(message["status"])
            if leaves or not message.get("more_body", True):
                gone.set()

        await self._app(
            {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": "POST",
                "path": "/v1/completions",
                "raw_path": b"/v1/completions",
                "root_path": "",
                "scheme": "http",
                "query_string": b"",
                "headers": [(b"authorization", f"Bearer {KEY if has_key else 'x'}".encode())],
                "client": ("127.0.0.1", 9),
                "server": ("127.0.0.1", 80),
            },
            receive,
            send,
        )


def held_blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def test_a_request_leaves_nothing_behind_however_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.coordinator.stage_link.RELEASED_KEPT", 50)
    clock, stages = Clock(), ScriptedStages(lambda prompt: [60 + len(prompt)] * 300)
    dispatcher, _ = make_dispatcher(stages, clock=clock)
    dispatcher.serve(make_serving(write_checkpoint(tmp_path / "checkpoint")))
    stages.report()
    backend = PipelineBackend(
        dispatcher=dispatcher,
        unix_time=lambda: 1_700_000_000.0,
        new_answer_id=lambda: "0001",
        new_seed=lambda: 11,
    )
    app = assemble(lambda: backend, keys=ApiKeys([hashlib.sha256(KEY.encode()).hexdigest()]))
    clients = Clients(app)

    async def step_forever() -> None:
        while True:
            clock.now += 0.1
            stages.report()
            stages.step()
            stages.forget()
            await asyncio.sleep(0)

    async def growth() -> int:
        stepping = asyncio.create_task(step_forever())
        await clients.ask(FIRST)
        before = held_blocks()
        await clients.ask(MORE)
        grown = held_blocks() - before
        stepping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stepping
        return grown

    grown = asyncio.run(growth())
    assert clients.statuses == {200, 400, 401, 404}
    assert dispatcher.requests_running == dispatcher.requests_waiting == 0
    assert grown < MORE / 2  # a single thing that every request left would be more
