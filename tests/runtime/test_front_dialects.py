"""Instances behind the front answer by APIs that they do not have themselves."""

import json
from typing import Any

from front_rig import CHAT, WORDS, Front, Told, ask, with_front

HI = [{"role": "user", "content": "hello there"}]
MESSAGE = {"model": "llama", "messages": HI, "max_tokens": 4}
RESPONSE = {"model": "llama", "input": HI, "max_output_tokens": 4}


def events_of(told: Told) -> list[dict[str, Any]]:
    lines = b"".join(told.pieces).decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def test_instances_answer_messages_and_responses() -> None:
    async def test(front: Front) -> None:
        whole = await ask(front.app, "/v1/messages", MESSAGE)
        assert (whole.status, whole.body["model"]) == (200, "llama")
        assert whole.body["content"] == [{"type": "text", "text": WORDS}]
        assert whole.body["stop_reason"] == "max_tokens"
        assert whole.body["usage"]["output_tokens"] == 4
        streamed = events_of(await ask(front.app, "/v1/messages", {**MESSAGE, "stream": True}))
        deltas = [event["delta"] for event in streamed if event["type"] == "content_block_delta"]
        assert "".join(delta["text"] for delta in deltas) == WORDS
        assert streamed[-2]["usage"] == whole.body["usage"]
        response = await ask(front.app, "/v1/responses", RESPONSE)
        assert response.body["output"][0]["content"][0]["text"] == WORDS
        assert response.body["usage"]["output_tokens"] == 4
        told = events_of(await ask(front.app, "/v1/responses", {**RESPONSE, "stream": True}))
        assert told[-1]["response"]["output"][0]["content"] == response.body["output"][0]["content"]
        assert front.balance.under_way == 0

    with_front({"a": "m"}, test)


def test_what_an_instance_refuses_or_breaks_off_has_the_shape_of_the_api() -> None:
    async def test(front: Front) -> None:
        refused = await ask(front.app, "/v1/messages", {**MESSAGE, "max_tokens": 10**6})
        assert refused.status == 400
        assert refused.body["error"]["type"] == "invalid_request_error"
        assert "maximum context length" in refused.body["error"]["message"]

    async def broken_message(front: Front) -> None:
        told = events_of(await ask(front.app, "/v1/messages", {**MESSAGE, "stream": True}))
        assert told[-1]["error"]["type"] == "api_error"
        assert "broke off" in told[-1]["error"]["message"]

    async def broken_response(front: Front) -> None:
        told = events_of(await ask(front.app, "/v1/responses", {**RESPONSE, "stream": True}))
        assert told[-1]["type"] == "response.failed"

    with_front({"a": "m:context=100"}, test)
    with_front({"a": "m:mode=breaks"}, broken_message)
    with_front({"a": "m:mode=breaks"}, broken_response)


def test_embeddings_come_from_an_instance_that_has_them() -> None:
    async def test(front: Front) -> None:
        for _ in range(4):  # whichever is chosen first
            told = await ask(front.app, "/v1/embeddings", {"model": "llama", "input": "hello"})
            assert (told.status, told.body["model"], told.instance) == (200, "llama", "b")
            assert told.body["data"][0]["embedding"] == [0.5, -0.5]
        assert front.balance.open_instances() == ["a", "b"]
        assert (await front.ask(CHAT)).status == 200

    with_front({"a": "m", "b": "m:embeds=1"}, test)


def test_without_an_instance_that_has_embeddings_that_is_said() -> None:
    async def test(front: Front) -> None:
        told = await ask(front.app, "/v1/embeddings", {"model": "llama", "input": "hello"})
        assert told.status == 404
        assert told.body["error"]["code"] == "no_such_endpoint"
        assert front.balance.open_instances() == ["a"]
        missing = await ask(front.app, "/v1/embeddings", {"model": "llama"})
        assert (missing.status, missing.body["error"]["param"]) == (400, "input")

    with_front({"a": "m"}, test)


def test_an_instance_counts_the_tokens_of_a_message() -> None:
    async def test(front: Front) -> None:
        asked = {"model": "llama", "messages": HI}
        told = await ask(front.app, "/v1/messages/count_tokens", asked)
        assert (told.status, told.body) == (200, {"input_tokens": 3})
        engine = front.instances["a"].engine
        assert engine is not None
        assert "cache_salt" not in engine.asked[-1]

    with_front({"a": "m"}, test)
