"""The official client of OpenAI asks by the Responses API."""

import json
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import Rig
from pydantic import BaseModel
from test_openai_client import TEXT, WEATHER, with_client
from test_openai_tools import ANSWERS, prompt_of, visited

from runtime.protocol.data import Reason

HERMES, CALLING, BEFORE_THE_CALL = ANSWERS["hermes"]
TOOL: Any = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


def test_a_response_is_answered_whole_and_streamed(checkpoint: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        whole = await client.responses.create(
            model="tiny", input="hi", instructions="Be kind.", metadata={"a": "b"}
        )
        assert whole.output_text == TEXT
        assert (whole.status, whole.error, whole.metadata) == ("completed", None, {"a": "b"})
        assert "Be kind.hi" in prompt_of(h)
        assert whole.usage is not None
        assert whole.usage.input_tokens > len("Be kind.")
        turns: Any = [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "hi"},
        ]
        async with client.responses.stream(model="tiny", input=turns) as stream:
            events = [event async for event in stream]
            streamed = await stream.get_final_response()
        assert [event.sequence_number for event in events] == list(range(len(events)))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == streamed.output_text == TEXT
        assert streamed.usage == whole.usage
        kinds = [event.type for event in events if not event.type.endswith("delta")]
        assert kinds == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        cut = await client.responses.create(model="tiny", input="hi", max_output_tokens=3)
        assert cut.status == "incomplete"
        assert cut.incomplete_details is not None
        assert cut.incomplete_details.reason == "max_output_tokens"
        async with client.responses.stream(model="tiny", input="hi", max_output_tokens=3) as stream:
            done = [event async for event in stream if event.type == "response.output_item.done"]
        assert [event.item.status for event in done] == ["incomplete"]

    with_client(checkpoint, visit)


def test_functions_are_offered_called_and_their_results_read(tmp_path: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        turns: Any = [{"role": "user", "content": "hi"}]
        whole = await client.responses.create(model="tiny", input=turns, tools=[TOOL])
        async with client.responses.stream(model="tiny", input=turns, tools=[TOOL]) as stream:
            streamed: Any = await stream.get_final_response()
        for response in (whole, streamed):
            message, call = response.output
            assert response.output_text == BEFORE_THE_CALL
            assert (call.type, call.name) == ("function_call", "weather")
            assert json.loads(call.arguments) == {"city": "Köln"}
        turns += [message, call]
        turns.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
        await client.responses.create(model="tiny", input=turns, tools=[TOOL])
        told = 'hiI look.\n{"name": "weather", "arguments": {"city": "Köln"}}'
        assert told in prompt_of(h).replace("<|assistant|>", "")

    visited(tmp_path, HERMES, CALLING, visit)


class Colour(BaseModel):
    kind: Literal["red", "blue"]


def test_an_answer_is_parsed_by_its_schema(checkpoint: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        parsed = await client.responses.parse(model="tiny", input="hi", text_format=Colour)
        assert parsed.output_parsed == Colour(kind="red")
        assert parsed.text is not None
        assert parsed.text.format is not None
        assert parsed.text.format.type == "json_schema"
        (route,) = h.stages.routes.values()
        assert json.loads(route.sampling.grammar)["required"] == ["kind"]

    with_client(checkpoint, visit, text='{"kind":"red"}', max_context_tokens=2000)


def test_what_would_be_answered_wrongly_is_refused_by_name(checkpoint: Path) -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png"}
    tool = {"type": "function", "name": "f", "parameters": {}}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": []}
    impossible = {"type": "json_schema", "name": "a", "schema": {"$ref": "#"}}
    refused: list[tuple[dict[str, Any], str, str]] = [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "nothing is stored"),
        ({"conversation": "conv_1"}, "conversation", "nothing is stored"),
        ({"include": ["message.output_text.logprobs"]}, "include", "is not answered here"),
        ({"background": True}, "background", "only false is supported"),
        ({"extra_body": {"max_tokens": 5}}, "max_tokens", "did you mean 'max_output_tokens'"),
        ({"extra_body": {"messages": []}}, "messages", "unknown parameter 'messages'"),
        ({"input": [{}]}, "input[0].role", "missing"),
        ({"input": ["hi"]}, "input[0]", '"hi": input should be a valid dict'),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content", "string; or Input"),
        ({"tools": [tool], "tool_choice": {"type": "function"}}, "tool_choice.name", "missing"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", '"web_search" are not supported'),
        ({"tools": [tool], "tool_choice": allowed}, "tool_choice", "allowed_tools"),
        ({"input": [{"role": "user", "content": [image]}]}, "input[0].content[0]", "input_image"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]", "item_reference"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "add"),
        ({"max_output_tokens": 10**6}, "max_output_tokens", "context"),
        ({"text": {"format": impossible}}, "text.format", "'text.format' asks for a schema"),
    ]

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        for change, param, named in refused:
            with pytest.raises(openai.BadRequestError, match=named) as caught:
                await client.responses.create(**{"model": "tiny", "input": "hi", **change})
            assert caught.value.param == param

    with_client(checkpoint, visit)


def test_what_changes_nothing_is_named_in_a_header(checkpoint: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        answer = await client.responses.with_raw_response.create(
            model="tiny",
            input="hi",
            store=True,
            include=["reasoning.encrypted_content"],
            reasoning={"effort": "low", "summary": "auto"},
        )
        assert answer.headers["x-helixweb-ignored"].split(", ") == sorted(
            ["include", "reasoning.effort", "reasoning.summary", "store"]
        )
        assert json.loads(answer.text)["store"] is False

    with_client(checkpoint, visit)


def test_a_stream_that_breaks_off_ends_as_a_failed_response(checkpoint: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        h.may_step.clear()
        stream = await client.responses.create(model="tiny", input="hi", stream=True)
        await h.until(lambda: any(h.stages.held.values()))
        (key,) = (key for key, nodes in h.stages.held.items() if nodes)
        h.stages.refuse(key, Reason.STAGE_ERROR)
        events = [event async for event in stream]
        assert [event.type for event in events][0::2] == ["response.created", "response.failed"]
        failed: Any = events[-1]
        assert failed.response.status == "failed"
        assert "failed while computing" in failed.response.error.message

    with_client(checkpoint, visit)
