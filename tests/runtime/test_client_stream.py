"""What is written to a client by its answer and, beside it, to keep its stream alive."""

import asyncio

import pytest
from starlette.types import Message

from runtime.api.client_stream import ClientStream
from runtime.api.events import DONE, WAITING


def test_a_client_that_reads_late_gets_one_beginning_and_nothing_after_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.api.client_stream.QUIET_S", 0.0)
    sent: list[Message] = []

    async def write() -> None:
        reads = asyncio.Event()

        async def send(message: Message) -> None:
            await reads.wait()
            sent.append(message)

        client = ClientStream({"type": "http"}, send)
        keeping = asyncio.create_task(client.keep_alive(lambda: {"x-from": "keeping"}))
        await asyncio.sleep(0)  # it has begun the stream, which the client does not read
        answering = asyncio.create_task(answer(client))
        await asyncio.sleep(0)
        reads.set()
        await answering
        assert not keeping.done()
        keeping.cancel()

    async def answer(client: ClientStream) -> None:
        await client.open({"x-from": "answer"})
        await client.send([{"text": "hello"}])
        await client.send([], is_last=True)

    asyncio.run(write())
    start, *parts = sent
    assert start["type"] == "http.response.start"
    assert (b"x-from", b"keeping") in start["headers"]
    assert b"".join(part["body"] for part in parts).replace(WAITING, b"") == (
        b'data: {"text":"hello"}\n\n' + DONE
    )
    assert [part["more_body"] for part in parts] == [True] * (len(parts) - 1) + [False]
