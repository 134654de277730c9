"""What people ask and are answered stands in no log, however detailed and whatever fails."""

import asyncio
import logging
from pathlib import Path

import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import Rig, with_coordinator

from runtime.protocol.data import Reason

SECRET = "my-diagnosis-is-private"
ANSWER = "the-answer-is-private-too"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path)


def test_neither_prompts_nor_answers_are_logged(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def visit(h: Rig) -> None:
        asked = {"messages": [{"role": "user", "content": SECRET}]}
        assert (await h.chat(**asked)).json()["choices"][0]["message"]["content"] == ANSWER
        await h.stream(**asked)
        assert (await h.post("/v1/completions", prompt=SECRET)).status_code == 200
        refused = [
            await h.chat(**asked, temperature="hot"),
            await h.chat(**asked, **{SECRET: 1}),
            await h.chat(messages=[{"role": "assistant", "content": SECRET}]),
            await h.post("/v1/completions", prompt=SECRET * 400),
            await h.client.post("/v1/chat/completions", content=f'{{"{SECRET}'.encode()),
        ]
        assert {answer.status_code for answer in refused} == {400}
        h.may_step.clear()

        async def fail() -> None:
            await h.until(lambda: h.dispatcher.requests_running == 1)
            (key,) = (key for key, nodes in h.stages.held.items() if nodes)
            h.stages.refuse(key, Reason.STAGE_ERROR)

        failed, _ = await asyncio.gather(h.chat(**asked), fail())
        assert failed.status_code == 500

    with_coordinator(checkpoint, visit, text=ANSWER)
    assert caplog.records, "the failure at the least is told"
    said = "\n".join([caplog.text, *(repr(record.args) for record in caplog.records)])
    assert SECRET not in said
    assert ANSWER not in said
