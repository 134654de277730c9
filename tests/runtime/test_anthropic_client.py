"""The official client of Anthropic against the coordinator."""

import json
from collections.abc import Awaitable, Callable
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import KEY, PATIENCE_S, Rig, with_coordinator
from test_openai_tools import ANSWERS, prompt_of

from runtime.protocol.data import Reason
from tests.installed import require

TEXT = "Grüße, 😀!"
HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
ASKED: dict[str, Any] = {"model": "tiny", "max_tokens": 300, "messages": HI}
WEATHER = {
    "name": "weather",
    "description": "Of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
HERMES, CALLING, BEFORE_THE_CALL = ANSWERS["hermes"]


@pytest.fixture(scope="module")
def sdk() -> Any:
    found = util.find_spec("anthropic") is not None
    require("anthropic", found=found, remedy="pip install -e '.[dev]' -c constraints.txt")
    return import_module("anthropic")


@pytest.fixture
def visited(tmp_path: Path, sdk: Any) -> Callable[..., None]:
    """Lets a client visit a coordinator whose model answers `text`."""

    def visit_by(
        visit: Callable[[Rig, Any], Awaitable[None]],
        *,
        template: str | None = None,
        text: str = TEXT,
        **plan: object,
    ) -> None:
        written = {} if template is None else {"chat_template": template}
        checkpoint = write_checkpoint(tmp_path / "checkpoint", **written)

        async def run(h: Rig) -> None:
            async with sdk.AsyncAnthropic(
                base_url=h.url, api_key=KEY, max_retries=0, timeout=PATIENCE_S
            ) as client:
                await visit(h, client)
            await h.until(lambda: h.dispatcher.requests_running == 0)
            h.assert_idle()

        with_coordinator(checkpoint, run, text=text, **({"max_context_tokens": 2000} | plan))

    return visit_by


def test_a_message_is_answered_whole_and_streamed(visited: Callable[..., None]) -> None:
    async def visit(h: Rig, client: Any) -> None:
        whole = await client.messages.create(**ASKED, system="Be kind.")
        assert [(block.type, block.text) for block in whole.content] == [("text", TEXT)]
        assert (whole.type, whole.role, whole.model) == ("message", "assistant", "tiny")
        assert (whole.stop_reason, whole.stop_sequence) == ("end_turn", None)
        assert "Be kind.hi" in prompt_of(h)
        async with client.messages.stream(
            **ASKED, system=[{"type": "text", "text": "Be kind."}]
        ) as s:
            assert "".join([text async for text in s.text_stream]) == TEXT
            streamed = await s.get_final_message()
        assert streamed.content[0].text == TEXT
        assert streamed.stop_reason == "end_turn"
        assert streamed.usage == whole.usage
        assert whole.usage.output_tokens > 0

    visited(visit)


def test_the_events_of_a_stream_come_in_the_documented_order(visited: Callable[..., None]) -> None:
    async def visit(h: Rig, client: Any) -> None:
        response = await h.client.post("/v1/messages", json={**ASKED, "stream": True})
        events = [dict(_fields(event)) for event in response.text.split("\n\n") if event]
        bodies = [json.loads(event["data"]) for event in events]
        assert [event["event"] for event in events] == [body["type"] for body in bodies]
        assert bodies[0]["message"]["content"] == []
        kinds = [body["type"] for body in bodies if body["type"] != "content_block_delta"]
        assert kinds == [
            "message_start",
            "content_block_start",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        assert all(body.get("index", 0) == 0 for body in bodies)

    visited(visit)


def _fields(event: str) -> list[tuple[str, str]]:
    return [(line.partition(": ")[0], line.partition(": ")[2]) for line in event.split("\n")]


def test_the_stop_sequence_that_ended_a_message_is_named(visited: Callable[..., None]) -> None:
    async def visit(h: Rig, client: Any) -> None:
        asked = {**ASKED, "stop_sequences": ["nothing", ", "]}
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        for message in (whole, streamed):
            assert message.content[0].text == "Grüße"
            assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", ", ")
        cut = await client.messages.create(**{**ASKED, "max_tokens": 3})
        assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)

    visited(visit)


def test_tools_are_offered_called_and_their_results_read(visited: Callable[..., None]) -> None:
    async def visit(h: Rig, client: Any) -> None:
        asked = {**ASKED, "tools": [WEATHER]}
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        for message in (whole, streamed):
            text, call = message.content
            assert text.text == BEFORE_THE_CALL
            assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Köln"})
            assert message.stop_reason == "tool_use"
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
        turns = [
            *HI,
            {"role": "assistant", "content": whole.content},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
        ]
        await client.messages.create(**{**asked, "messages": turns})
        told = 'I look.\n{"name": "weather", "arguments": {"city": "Köln"}}rainSo?'
        assert told in prompt_of(h).replace("<|tool|>", "")
        untold = {**asked, "tool_choice": {"type": "none"}}
        await client.messages.create(**untold)
        assert "weather" not in prompt_of(h)

    visited(visit, template=HERMES, text=CALLING)


def test_a_call_that_was_cut_is_no_call(visited: Callable[..., None]) -> None:
    async def visit(h: Rig, client: Any) -> None:
        message = await client.messages.create(**{**ASKED, "tools": [WEATHER], "max_tokens": 60})
        assert message.stop_reason == "max_tokens"
        assert {block.type for block in message.content} == {"text"}

    visited(visit, template=HERMES, text=CALLING)


def test_the_tokens_of_a_message_are_counted_as_they_are_billed(
    visited: Callable[..., None],
) -> None:
    async def visit(h: Rig, client: Any) -> None:
        asked: dict[str, Any] = {
            "model": "tiny",
            "messages": HI,
            "system": "Be kind.",
            "tools": [WEATHER],
        }
        counted = await client.messages.count_tokens(**asked)
        message = await client.messages.create(**asked, max_tokens=4)
        assert counted.input_tokens == message.usage.input_tokens > len("Be kind.")

    visited(visit, template=HERMES)


def test_what_would_be_answered_wrongly_is_refused_by_name(
    visited: Callable[..., None], sdk: Any
) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    impossible = {"type": "json_schema", "schema": {"$ref": "#"}}
    call = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "sunny"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"messages": [{"role": "user", "content": [image]}]}, 'type "image" are not supported'),
        ({"messages": [*HI, {"role": "assistant", "content": "I"}]}, "last message"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"messages": [{"role": "user", "content": []}]}, r"messages\[0\].content' is \[\]: list"),
        ({"messages": [{"role": "user", "content": [call]}]}, r"content\[0\]' is a block of type"),
        (
            {"messages": [*HI, {"role": "assistant", "content": [result]}, *HI]},
            r"'messages\[1\].content\[0\]' is a block of type 'tool_result' in a message of the "
            "assistant; such blocks belong to messages of the user",
        ),
        ({"extra_body": {"response_format": {}}}, "unknown parameter 'response_format'"),
        ({"extra_body": {"mcp_servers": []}}, "mcp_servers"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5000}, "context"),
        ({"extra_body": {"output_config": {"format": impossible}}}, "'output_config.format' asks"),
    ]

    async def visit(h: Rig, client: Any) -> None:
        for change, named in refused:
            with pytest.raises(sdk.BadRequestError, match=named) as caught:
                await client.messages.create(**{**ASKED, **change})
            assert caught.value.body["type"] == "error"
            assert caught.value.body["error"]["type"] == "invalid_request_error"
        with pytest.raises(sdk.NotFoundError) as missing:
            await client.messages.create(**{**ASKED, "model": "claude"})
        assert missing.value.body["error"]["type"] == "not_found_error"
        with pytest.raises(sdk.APIStatusError, match=r"GET /v1/messages: .*; use POST") as method:
            await client.get("/v1/messages", cast_to=object)
        assert (method.value.status_code, method.value.body["type"]) == (405, "error")

    visited(visit)


def test_what_changes_nothing_is_named_in_a_header(visited: Callable[..., None]) -> None:
    async def visit(h: Rig, client: Any) -> None:
        cached = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
        answer = await client.messages.with_raw_response.create(
            **{**ASKED, "messages": [{"role": "user", "content": [cached]}]},
            metadata={"user_id": "me"},
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
        named = answer.headers["x-helixweb-ignored"].split(", ")
        assert named == sorted(
            ["messages.content.cache_control", "metadata", "thinking", "thinking.budget_tokens"]
        )
        plain = await client.messages.with_raw_response.create(**ASKED)
        assert "x-helixweb-ignored" not in plain.headers

    visited(visit)


def test_a_body_is_not_read_before_the_key_was_checked(
    visited: Callable[..., None], sdk: Any
) -> None:
    async def visit(h: Rig, client: Any) -> None:
        stranger = sdk.AsyncAnthropic(base_url=h.url, api_key="hlxk_wrong", max_retries=0)
        async with stranger:
            with pytest.raises(sdk.AuthenticationError) as caught:
                await stranger.messages.create(**{**ASKED, "max_tokens": 0})
        assert caught.value.body["error"]["type"] == "authentication_error"

    visited(visit)


def test_a_stream_that_breaks_off_ends_with_an_error_event(
    visited: Callable[..., None], sdk: Any
) -> None:
    async def visit(h: Rig, client: Any) -> None:
        async def read() -> None:
            async with client.messages.stream(**ASKED) as stream:
                async for _ in stream.text_stream:
                    h.may_step.clear()
                    for key in [key for key, nodes in h.stages.held.items() if nodes]:
                        h.stages.refuse(key, Reason.STAGE_ERROR)

        with pytest.raises(sdk.APIStatusError) as caught:
            await read()
        assert caught.value.body["error"]["type"] == "api_error"
        assert "failed while computing" in caught.value.body["error"]["message"]

    visited(visit)
