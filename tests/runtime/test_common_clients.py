"""Clients that people use, as they come, against a coordinator with real stages."""

import json
import os
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import KEY, PATIENCE_S, Rig, with_coordinator
from real_stages import make_checkpoint, with_real_stages
from tokenizer_families import QWEN

pytestmark = pytest.mark.processes  # schemas are looked at in a process of its own

QUESTION = "Which colour?"
MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": QUESTION},
]
COLOUR: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["red", "blue"]}},
    "required": ["kind"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "paint", "description": "Paints.", "parameters": COLOUR},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its chat template takes tools."""
    directory = make_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": QWEN}))
    return directory


def test_the_openai_client_reads_past_the_comments_of_a_stream_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.api.client_stream.QUIET_S", 0.01)

    async def visit(h: Rig) -> None:
        heard: list[bytes] = []

        async def listen(response: httpx.Response) -> None:
            """Let stages go on once a comment has come."""
            read = response.aiter_raw

            async def pieces(size: int | None = None) -> AsyncIterator[bytes]:
                async for piece in read(size):
                    heard.append(piece)
                    if b": waiting" in piece:
                        h.may_step.set()
                    yield piece

            response.aiter_raw = pieces  # type: ignore[method-assign]

        async with (
            httpx.AsyncClient(timeout=PATIENCE_S, event_hooks={"response": [listen]}) as http,
            openai.AsyncOpenAI(
                base_url=f"{h.url}/v1", api_key=KEY, max_retries=0, http_client=http
            ) as client,
        ):
            h.may_step.clear()
            stream = await client.chat.completions.create(
                model="tiny", messages=MESSAGES, stream=True
            )
            said = [piece.choices[0].delta.content or "" async for piece in stream]
        assert b": waiting" in b"".join(heard)
        assert "".join(said) == h.text

    with_coordinator(write_checkpoint(tmp_path), visit)


def test_the_openai_client_holds_a_conversation_with_echoed_answers(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{h.url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE_S
        ) as client:
            messages = list(MESSAGES)
            for _ in range(3):
                answer = await client.chat.completions.create(
                    model="tiny",
                    messages=messages,
                    max_completion_tokens=8,
                    store=True,
                    metadata={"project": "x"},
                    service_tier="default",
                    reasoning_effort="low",
                    user="me",
                )
                assert answer.usage is not None
                assert answer.usage.completion_tokens <= 8
                messages += [answer.choices[0].message, MESSAGES[1]]  # as it came
            called = await client.chat.completions.create(
                model="tiny",
                messages=MESSAGES,
                tools=[TOOL],  # type: ignore[list-item]
                tool_choice="required",
                parallel_tool_calls=False,
            )
            message = called.choices[0].message
            (call,) = message.tool_calls or ()
            assert call.type == "function"
            assert set(json.loads(call.function.arguments)) == {"kind"}
            result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
            await client.chat.completions.create(
                model="tiny",
                messages=[*MESSAGES, message, result],  # type: ignore[list-item]
                tools=[TOOL],  # type: ignore[list-item]
                max_tokens=4,
            )
            assert (await client.models.retrieve("tiny")).id == "tiny"

    with_real_stages(checkpoint, visit)


def test_litellm_completes_streams_calls_and_reads_structured_answers(checkpoint: Path) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm

    async def visit(h: Rig) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{h.url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE_S
        ) as client:
            await ask(h, {"model": "openai/tiny", "api_key": KEY, "client": client})

    async def ask(h: Rig, asked: Any) -> None:
        cached = {"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}
        messages: list[Any] = [{"role": "user", "content": [cached]}]
        answer = await litellm.acompletion(
            **asked, messages=messages, max_tokens=6, top_k=-1, metadata={"a": "b"}, user="me"
        )
        message = answer.choices[0].message
        assert isinstance(message.content, str)
        messages += [message.model_dump(), {"role": "user", "content": "And?"}]
        stream = await litellm.acompletion(
            **asked,
            messages=messages,
            max_tokens=6,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].usage.completion_tokens > 0
        bound = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR}}
        structured = await litellm.acompletion(**asked, messages=MESSAGES, response_format=bound)
        assert set(json.loads(structured.choices[0].message.content)) == {"kind"}
        forced = {"type": "function", "function": {"name": "paint"}}
        # Without this option it imports the package mcp, which these tools do not need.
        with_tools = asked | {"tools": [TOOL], "_skip_mcp_handler": True}
        called = await litellm.acompletion(
            **with_tools,
            messages=MESSAGES,
            tool_choice=forced,
            parallel_tool_calls=False,
        )
        assert called.choices[0].finish_reason == "tool_calls"
        message = called.choices[0].message
        (call,) = message.tool_calls
        assert call.function.name == "paint"
        assert set(json.loads(call.function.arguments)) == {"kind"}
        result = {"role": "tool", "tool_call_id": call.id, "name": "paint", "content": "done"}
        await litellm.acompletion(
            **with_tools,
            messages=[*MESSAGES, message.model_dump(), result],
            tool_choice="auto",
            max_tokens=4,
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own
        with_real_stages(checkpoint, visit)


def test_langchain_invokes_streams_calls_and_reads_structured_answers(checkpoint: Path) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    async def visit(h: Rig) -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            await ask(h, http)

    async def ask(h: Rig, http: httpx.AsyncClient) -> None:
        model = ChatOpenAI(
            http_async_client=http,
            model="tiny",
            base_url=f"{h.url}/v1",
            api_key=SecretStr(KEY),
            max_retries=0,
            timeout=PATIENCE_S,
            max_completion_tokens=6,
            reasoning_effort="low",
            metadata={"a": "b"},
            store=False,
            stream_usage=True,
        )
        question = HumanMessage(QUESTION)
        answer = await model.ainvoke([question])
        assert answer.usage_metadata is not None
        again = await model.ainvoke([question, answer, HumanMessage("And?")])
        assert isinstance(again.content, str)
        parts = [part async for part in model.astream([question])]
        assert sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata)
        bounded = model.model_copy(update={"max_tokens": 400})
        painter = bounded.bind_tools([TOOL], tool_choice="paint", parallel_tool_calls=False)
        called = await painter.ainvoke([question])
        (call,) = called.tool_calls
        assert (call["name"], set(call["args"])) == ("paint", {"kind"})
        done = ToolMessage("done", tool_call_id=call["id"])
        await model.bind_tools([TOOL]).ainvoke([question, called, done])
        structured = bounded.with_structured_output(
            {"title": "colour", **COLOUR}, method="json_schema", strict=True
        )
        assert (await structured.ainvoke([question]))["kind"] in ("red", "blue")

    with_real_stages(checkpoint, visit)


def test_what_vllm_bench_serve_sends_is_answered_with_as_many_tokens_as_it_asks_for(
    checkpoint: Path,
) -> None:
    """Its requests to both endpoints, and what it reads of the answers."""
    completion = {
        "model": "tiny",
        "prompt": QUESTION,
        "repetition_penalty": 1.0,
        "max_tokens": 24,
        "logprobs": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
    }
    chat = {
        "model": "tiny",
        "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        "max_completion_tokens": 24,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 1.0,
        "min_tokens": 24,
    }

    async def visit(h: Rig) -> None:
        (first,) = (await h.client.get("/v1/models")).json()["data"]
        assert (first["id"], first["root"]) == ("tiny", "tiny")
        for path, body, likely in (
            ("/v1/completions", completion, {"logit_bias": {}}),
            ("/v1/completions", completion, {"logprobs": 2}),
            ("/v1/chat/completions", chat, {}),
            ("/v1/chat/completions", chat, {"logit_bias": {"1": 100}}),  # the end of sequence
        ):
            response = await h.client.post(path, json=body | likely)
            assert response.status_code == 200, response.text
            events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
            assert events.pop() == "[DONE]"
            chunks = [json.loads(event) for event in events]
            assert chunks[-1]["choices"] == []
            assert chunks[-1]["usage"]["completion_tokens"] == 24
            assert chunks[-2]["choices"][0]["finish_reason"] == "length"

    with_real_stages(checkpoint, visit)
