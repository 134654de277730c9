"""Thoughts are divided from what a model says, however the answer is split."""

import json
from pathlib import Path
from typing import Any

import pytest
from coordinator_doubles import write_checkpoint
from coordinator_rig import Rig, with_coordinator
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from runtime.coordinator.message_reader import MessageForm, MessageReader, Thoughts
from runtime.coordinator.tool_calls import ToolDialect
from tests.examples import examples

THINK = ("<think>", "</think>")
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Yes."
CASES: list[tuple[MessageForm, str, str, str, int]] = [
    (MessageForm(thoughts=Thoughts(tags=tags, is_open=is_open), dialect=dialect), *rest)
    for tags, is_open, dialect, rest in (
        (THINK, False, None, ("<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes.", 0)),
        (THINK, True, None, ("\nHm.\n\nSo.\n</think>\n\nYes.\n", "Hm.\n\nSo.", "Yes.\n", 0)),
        (THINK, False, None, ("No <think> here.", "", "No <think> here.", 0)),
        (THINK, False, None, ("<thin", "", "<thin", 0)),
        (THINK, True, None, ("Hm. </thin", "Hm. </thin", "", 0)),
        (THINK, True, ToolDialect.TAGGED, (f"Hm.</think>{CALL}", "Hm.", "", 1)),
        (("[THINK]", "[/THINK]"), False, None, ("[THINK]Hm.[/THINK]Yes.", "Hm.", "Yes.", 0)),
    )
]
CASES.append((MessageForm(dialect=ToolDialect.HARMONY), ANALYSIS + FINAL, "Hm.", "Yes.", 0))


@given(case=st.sampled_from(CASES), data=st.data())
@settings(max_examples=examples(200))
def test_thoughts_are_found_however_an_answer_is_split(
    case: tuple[MessageForm, str, str, str, int], data: st.DataObject
) -> None:
    form, answer, thoughts, text, calls = case
    reader = MessageReader(form, call_ids="x")
    found_thoughts = found_text = ""
    found_calls, rest = 0, answer
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        part = reader.part(rest[:size], is_last=size == len(rest))
        rest = rest[size:]
        found_thoughts += part.get("reasoning_content", "")
        found_text += part.get("content", "")
        found_calls += sum("id" in call for call in part.get("tool_calls", ()))
    assert (found_thoughts, found_text, found_calls) == (thoughts, text, calls)
    whole = MessageReader(form, call_ids="x").whole(answer)
    assert (whole.get("reasoning_content", ""), whole.get("content", "")) == (thoughts, text)
    assert len(whole.get("tool_calls", ())) == calls


TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content.split('</think>')[-1] }}"
    "{% endfor %}<|assistant|>{% if not enable_thinking is defined or enable_thinking %}<think>"
    "{% endif %}"
)


@pytest.fixture
def thinker(tmp_path: Path) -> Path:
    """A checkpoint whose tags of thoughts are special tokens; its template opens the thought."""
    checkpoint = write_checkpoint(tmp_path / "checkpoint", chat_template=TEMPLATE)
    path = str(checkpoint / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_special_tokens([AddedToken(tag, special=True) for tag in THINK])
    tokenizer.save(path)
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"vocab_size": 263}))
    return checkpoint


def test_thoughts_are_answered_apart_whole_and_streamed(thinker: Path) -> None:
    async def visit(h: Rig) -> None:
        controls = {h.serving.tokenizer.token_text(token): token for token in (261, 262)}
        ids = h.serving.tokenizer.encode_text
        h.stages.script = lambda _: [*ids("Hm."), controls["</think>"], *ids("Yes."), 257]
        whole = (await h.chat()).json()["choices"][0]["message"]
        assert (whole["reasoning_content"], whole["content"]) == ("Hm.", "Yes.")
        deltas = [event["choices"][0]["delta"] for event in await h.stream()]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
        assert "".join(delta.get("content", "") for delta in deltas) == "Yes."
        without = (await h.chat(include_reasoning=False)).json()["choices"][0]["message"]
        assert "reasoning_content" not in without
        assert without["content"] == "Yes."
        asked: dict[str, Any] = {
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "hi"}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }
        message = (await h.post("/v1/messages", **asked)).json()["content"]
        assert [(block["type"], block.get("thinking")) for block in message] == [
            ("thinking", "Hm."),
            ("text", None),
        ]
        response = (await h.post("/v1/responses", input="hi")).json()["output"]
        assert [item["type"] for item in response] == ["reasoning", "message"]
        assert response[0]["content"][0]["text"] == "Hm."
        text = (await h.post("/v1/completions", prompt="hi", max_tokens=50)).json()
        assert text["choices"][0]["text"] == "Hm.Yes."

    with_coordinator(thinker, visit)
