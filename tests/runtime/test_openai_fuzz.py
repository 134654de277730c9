"""Made-up requests to the coordinator: never a 5xx, every answer as documented, nothing is left."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import schemathesis
from coordinator_doubles import write_checkpoint
from coordinator_rig import KEY, Rig, rig

from runtime.coordinator.openapi import openapi_document
from tests.generated_requests import A_HANG_S, Tally, attack

# A new schema is looked at in a process of its own, which takes half a second.
_KEEPS_SCHEMA = 0.02


@contextmanager
def rig_elsewhere(checkpoint: Path) -> Iterator[Rig]:
    """A coordinator in a thread, while this one may wait for its answers."""
    opened = threading.Event()
    kept: dict[str, Rig] = {}
    loop = asyncio.new_event_loop()
    closing = asyncio.Event()

    async def live() -> None:
        async with rig(checkpoint) as built:
            kept["rig"] = built
            opened.set()
            await closing.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(live()))
    thread.start()
    try:
        assert opened.wait(A_HANG_S)
        yield kept["rig"]
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join()
        loop.close()


def fuzz(checkpoint: Path, *, requests: int, seed: int) -> Tally:
    with rig_elsewhere(checkpoint) as built:
        authorization = {"Authorization": f"Bearer {KEY}"}

        def send(case: schemathesis.Case, dice: random.Random) -> schemathesis.Response:
            known = dice.random() < 0.95
            if isinstance(case.body, dict):
                if "model" in case.body and dice.random() < 0.9:
                    case.body["model"] = "tiny"
                if dice.random() > _KEEPS_SCHEMA:
                    for key in ("response_format", "tool_choice"):
                        case.body.pop(key, None)
            if "name" in case.path_parameters and dice.random() < 0.3:
                case.path_parameters["name"] = "tiny"
            return case.call(
                base_url=built.url, headers=authorization if known else {}, timeout=A_HANG_S
            )

        def still_answers() -> None:
            answer = httpx.post(
                f"{built.url}/v1/completions",
                json={"model": "tiny", "prompt": "hi", "max_tokens": 100},
                headers=authorization,
                timeout=A_HANG_S,
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["choices"][0]["text"] == built.text

        tally = attack(
            openapi_document(), send=send, requests=requests, seed=seed, between=still_answers
        )
        built.assert_idle()
    print(tally.line())
    return tally


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.mark.fuzz
def test_no_request_breaks_the_coordinator(checkpoint: Path) -> None:
    tally = fuzz(checkpoint, requests=120, seed=1)
    assert not tally.faults, tally.report()
    assert tally.requests >= 120


@pytest.mark.fuzz
def test_ten_thousand_requests_do_not_break_the_coordinator(checkpoint: Path) -> None:
    tally = fuzz(checkpoint, requests=10_000, seed=2)
    assert not tally.faults, tally.report()
    assert tally.requests >= 10_000
