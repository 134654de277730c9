"""The official client offers tools to models of two families, and reads the calls they make."""

import json
from collections.abc import Awaitable, Callable
from importlib import util
from pathlib import Path
from typing import Any

import openai
import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import Rig
from test_openai_client import HI, WEATHER, with_client

# as the families' templates are: tools before the messages, calls and their answers among them
MESSAGES = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
HERMES = (
    "{% if tools %}Call within <tool_call></tool_call>: {{ tools | tojson }}{% endif %}" + MESSAGES
)
LLAMA = (
    '{% if tools %}ipython. Respond with {"name": f, "parameters": {}}.'
    "{{ tools | tojson }}{% endif %}" + MESSAGES
)
CALL = '{"name": "weather", "arguments": {"city": "Köln"}}'
ANSWERS = {
    "hermes": (HERMES, f"I look.\n<tool_call>\n{CALL}\n</tool_call>", "I look.\n"),
    "llama": (LLAMA, CALL.replace("arguments", "parameters"), None),
}


def visited(
    directory: Path,
    template: str,
    text: str,
    visit: Callable[[Rig, openai.AsyncOpenAI], Awaitable[None]],
) -> None:
    checkpoint = write_checkpoint(directory / "checkpoint", chat_template=template)
    with_client(checkpoint, visit, text=text, max_context_tokens=2000)


def prompt_of(h: Rig) -> str:
    """The last one that was sent."""
    message = [message for _, message in h.stages.sent if message.kind.name == "PROMPT"][-1]
    return h.serving.tokenizer.decode(memoryview(message.payload).cast("i").tolist())


def test_without_parallel_calls_only_the_first_is_answered(tmp_path: Path) -> None:
    call = f"<tool_call>{CALL}</tool_call>"

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        for allowed, calls in ((True, 2), (False, 1)):
            asked: Any = {
                "model": "tiny",
                "messages": HI,
                "tools": [WEATHER],
                "parallel_tool_calls": allowed,
            }
            whole = await client.chat.completions.create(**asked)
            assert len(whole.choices[0].message.tool_calls) == calls
            assert whole.choices[0].finish_reason == "tool_calls"
            begun = []
            async for chunk in await client.chat.completions.create(**asked, stream=True):
                begun += [part.index for part in chunk.choices[0].delta.tool_calls or ()]
            assert set(begun) == set(range(calls))

    visited(tmp_path, HERMES, call + call, visit)


@pytest.mark.parametrize("family", ["hermes", "llama"])
def test_a_call_is_answered_whole_and_streamed(tmp_path: Path, family: str) -> None:
    template, text, content = ANSWERS[family]

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        whole = await client.chat.completions.create(model="tiny", messages=HI, tools=[WEATHER])
        choice = whole.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == content
        (call,) = choice.message.tool_calls
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments) == {"city": "Köln"}
        assert json.dumps(WEATHER["function"]["parameters"]) in prompt_of(h)
        stream = await client.chat.completions.create(
            model="tiny", messages=HI, tools=[WEATHER], tool_choice="auto", stream=True
        )
        begins, arguments, spoken, finishes = [], [], "", []
        async for chunk in stream:
            for each in chunk.choices:
                spoken += each.delta.content or ""
                finishes += [each.finish_reason] if each.finish_reason else []
                for part in each.delta.tool_calls or ():
                    begins += [(part.index, part.type, part.function.name)] if part.id else []
                    arguments.append(part.function.arguments)
        assert begins == [(0, "function", "weather")]
        assert "".join(arguments) == call.function.arguments
        assert len(arguments) > 5
        assert (spoken or None, finishes) == (content, ["tool_calls"])

    visited(tmp_path, template, text, visit)


def test_text_that_is_no_call_stays_text(tmp_path: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        whole = await client.chat.completions.create(model="tiny", messages=HI, tools=[WEATHER])
        assert whole.choices[0].message.content == "None needed."
        assert whole.choices[0].message.tool_calls is None
        assert whole.choices[0].finish_reason == "stop"

    visited(tmp_path, LLAMA, "None needed.", visit)


def test_with_the_choice_none_the_model_is_told_of_no_tools(tmp_path: Path) -> None:
    template, text, _ = ANSWERS["hermes"]

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        whole = await client.chat.completions.create(
            model="tiny", messages=HI, tools=[WEATHER], tool_choice="none"
        )
        assert whole.choices[0].message.content == text
        assert "weather" not in prompt_of(h)

    visited(tmp_path, template, text, visit)


@pytest.mark.parametrize("family", ["hermes", "llama"])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_call_that_is_demanded_is_kept_within_its_schema(
    tmp_path: Path, family: str, choice: object
) -> None:
    other = {"type": "function", "function": {"name": "other"}}

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        whole = await client.chat.completions.create(
            model="tiny", messages=HI, tools=[WEATHER, other], tool_choice=choice
        )
        (call,) = whole.choices[0].message.tool_calls
        assert call.function.name == "weather"
        assert whole.choices[0].message.content is None
        assert prompt_of(h).endswith("<tool_call>\n") == (family == "hermes")
        (route,) = h.stages.routes.values()
        schema = json.loads(route.sampling.grammar)
        named = schema if choice != "required" else schema["anyOf"][0]
        assert named["properties"]["name"] == {"const": "weather"}
        assert named["properties"]["arguments"] == WEATHER["function"]["parameters"]
        assert len(schema.get("anyOf", [schema])) == (2 if choice == "required" else 1)

    visited(tmp_path, ANSWERS[family][0], CALL, visit)


def test_without_the_grammar_library_a_demanded_call_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name: None if name == "llguidance" else found(name)
    )

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match=r"helixweb\[grammar\]") as caught:
            await client.chat.completions.create(
                model="tiny", messages=HI, tools=[WEATHER], tool_choice="required"
            )
        assert caught.value.param == "tool_choice"

    visited(tmp_path, HERMES, CALL, visit)


def test_calls_and_their_answers_go_back_into_the_chat(tmp_path: Path) -> None:
    chat = [
        *HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Köln"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        await client.chat.completions.create(model="tiny", messages=chat, tools=[WEATHER])
        assert '{"name": "weather", "arguments": {"city": "Köln"}}' in prompt_of(h)
        assert "rain" in prompt_of(h)
        for wrong in ("no json", "[" * 2000 + "]" * 2000, '{"city": "\\ud800"}'):
            chat[1]["tool_calls"][0]["function"]["arguments"] = wrong
            with pytest.raises(openai.BadRequestError, match="function call are not JSON"):
                await client.chat.completions.create(model="tiny", messages=chat, tools=[WEATHER])

    visited(tmp_path, HERMES, "It rains.", visit)


def test_tools_nested_however_deeply_are_told_or_refused(tmp_path: Path) -> None:
    body = json.dumps({"model": "tiny", "messages": HI, "tools": [WEATHER]})
    given = json.dumps(WEATHER["function"]["parameters"])

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        for levels, status in [(100, 200), (900, 400), (950, 400), (970, 400), (5000, 400)]:
            deep = body.replace(given, '{"a":' * levels + "{}" + "}" * levels)
            answer = await h.client.post("/v1/chat/completions", content=deep)
            assert answer.status_code == status, levels

    visited(tmp_path, HERMES, "x", visit)


def test_a_family_whose_calls_are_not_known_is_refused(tmp_path: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="in a way that is not known here"):
            await client.chat.completions.create(model="tiny", messages=HI, tools=[WEATHER])
        assert not h.stages.sent

    visited(tmp_path, "[AVAILABLE_TOOLS] {{ tools | tojson }}" + MESSAGES, "x", visit)
