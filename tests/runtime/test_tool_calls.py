"""Calls of tools as the families write them, read whole, character by character, and in between."""

import itertools
import json
import random
import sys

import pytest

from runtime.coordinator.message_pieces import CallArguments, CallBegins, Piece
from runtime.coordinator.message_reader import MessageForm
from runtime.coordinator.tool_calls import ToolDialect, dialect_of
from runtime.protocol.openai_tools import Function, Tool

TAGGED, BARE = ToolDialect.TAGGED, ToolDialect.BARE
MISTRAL, DEEPSEEK = ToolDialect.MISTRAL, ToolDialect.DEEPSEEK
XML, HARMONY = ToolDialect.QWEN_XML, ToolDialect.HARMONY
ARGUMENTS = '{"city": "a }\\" b", "days": [1, {"x": 2}]}'
CALL = f'{{"name": "weather", "arguments": {ARGUMENTS}}}'
LLAMA = f'{{"name": "weather", "parameters": {ARGUMENTS}}}'
TURNED = f'{{"arguments": {ARGUMENTS}, "name": "weather"}}'

DAYS = {"type": "array"}
WEATHER = Tool(
    type="function",
    function=Function(
        name="weather",
        parameters={"type": "object", "properties": {"city": {"type": "string"}, "days": DAYS}},
    ),
)
IN_XML = """<tool_call>
<function=weather>
<parameter=city>
a }" b
</parameter>
<parameter=days>
[1, {"x": 2}]
</parameter>
</function>
</tool_call>"""


def deepseek(*calls: str) -> str:
    """A block of calls, with the bars and blanks of the markers."""
    block = "".join(f"<|tool call begin|>{call}<|tool call end|>" for call in calls)
    marked = f"<|tool calls begin|>{block}<|tool calls end|>"
    for words in ("calls begin", "calls end", "call begin", "call end"):
        marked = marked.replace(f"<|tool {words}|>", f"<|tool▁{words.replace(' ', '▁')}|>")
    return (
        marked.replace("<|sep|>", "<|tool▁sep|>").replace("<|", "<\uff5c").replace("|>", "\uff5c>")
    )


V3 = f"function<|sep|>weather\n```json\n{ARGUMENTS}\n```"
CALLED = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"

CASES = [
    (MISTRAL, "no call [TOOL", "no call [TOOL", 0),
    (MISTRAL, f"[TOOL_CALLS] [{CALL}, {CALL}]", "", 2),
    (MISTRAL, f"I see.[TOOL_CALLS]weather[ARGS]{ARGUMENTS}", "I see.", 1),
    (MISTRAL, f"[TOOL_CALLS]weather{ARGUMENTS}[TOOL_CALLS]weather[ARGS]{ARGUMENTS}", "", 2),
    (MISTRAL, "[TOOL_CALLS]weather[ARGS]{", "[TOOL_CALLS]weather[ARGS]{", 0),
    (MISTRAL, '[TOOL_CALLS] [{"a": 1}] b', '[TOOL_CALLS] [{"a": 1}] b', 0),
    (MISTRAL, "[TOOL_CALLS]" + "x" * 600, "[TOOL_CALLS]" + "x" * 600, 0),
    (DEEPSEEK, deepseek(f"weather<|sep|>{ARGUMENTS}"), "", 1),
    (DEEPSEEK, "I see.\n\n" + deepseek(V3, V3), "I see.\n\n", 2),
    (DEEPSEEK, deepseek("weather<|sep|>no json"), deepseek("weather<|sep|>no json"), 0),
    (XML, IN_XML, "", 1),
    (XML, f"Let me see.\n{IN_XML}\n{IN_XML}", "Let me see.\n", 2),
    (XML, "a <tool_call>b</tool_call>", "a <tool_call>b</tool_call>", 0),
    (HARMONY, "just words <|end", "just words <|end", 0),
    (HARMONY, f"{FINAL}so<|return|>", "so", 0),
    (HARMONY, f"{CALLED}{ARGUMENTS}<|call|>", "", 1),
    (HARMONY, f"{CALLED}{ARGUMENTS}<|call|>{FINAL}There.", "There.", 1),
    (TAGGED, "no call at all", "no call at all", 0),
    (TAGGED, f"<tool_call>\n{CALL}\n</tool_call>", "", 1),
    (TAGGED, f"Let me see.\n<tool_call>\n{CALL}\n</tool_call>", "Let me see.\n", 1),
    (TAGGED, f"<tool_call>{CALL}</tool_call>\n<tool_call>\n{CALL}\n</tool_call>\n", "", 2),
    (TAGGED, f"<tool_call>\n{TURNED}\n</tool_call>", "", 1),
    (TAGGED, f"<tool_call>{CALL}</tool_call>\nIt is so.", "\nIt is so.", 1),
    (TAGGED, "a < b and <tool_ call", "a < b and <tool_ call", 0),
    (TAGGED, "<tool_call>no json</tool_call>!", "<tool_call>no json</tool_call>!", 0),
    (TAGGED, '<tool_call>{"name": 3}</tool_call>!', '<tool_call>{"name": 3}</tool_call>!', 0),
    (TAGGED, "<tool_call>{", "<tool_call>{", 0),
    (BARE, LLAMA, "", 1),
    (BARE, f"\n{CALL}", "", 1),
    (BARE, f"{LLAMA}; {LLAMA}", "", 2),
    (BARE, TURNED, "", 1),
    (BARE, "just words {", "just words {", 0),
    (BARE, '{"a": 1} is JSON', '{"a": 1} is JSON', 0),
    (BARE, '{"a": ', '{"a": ', 0),
    *(
        (dialect, form % text, form % text, 0)
        for dialect, form in ((TAGGED, "<tool_call>%s</tool_call>"), (BARE, "%s"))
        for text in (
            '{"name": "a\\ud800", "arguments": {}}',
            '{"name": "a\\q", "arguments": {}}',
            '{"name": "a\nb", "arguments": {}}',
            '{"arguments": {"x": "\\ud800"}, "name": "weather"}',
            f'{{"arguments": {"[" * 1500}{"]" * 1500}, "name": "weather"}}',
        )
    ),
]


def read(dialect: ToolDialect, parts: list[str]) -> tuple[str, list[tuple[str, str]]]:
    reader = MessageForm(dialect=dialect, tools=[WEATHER]).reader()
    pieces: list[Piece] = [piece for part in parts for piece in reader.push(part)]
    pieces += reader.flush()
    text, calls = "", []
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
        elif isinstance(piece, CallBegins):
            assert piece.index == len(calls)
            calls.append((piece.name, ""))
        elif isinstance(piece, CallArguments):
            assert piece.index == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + piece.text)
    assert reader.calls == len(calls)
    return text, calls


@pytest.mark.parametrize(("dialect", "answer", "text", "count"), CASES)
def test_an_answer_is_read_the_same_however_it_is_split(
    dialect: ToolDialect, answer: str, text: str, count: int
) -> None:
    dice = random.Random(1)
    splits = [[answer], list(answer)]
    for _ in range(20):
        cuts = sorted(dice.choices(range(len(answer) + 1), k=4))
        bounds = [0, *cuts, len(answer)]
        splits.append([answer[a:b] for a, b in itertools.pairwise(bounds)])
    for parts in splits:
        found, calls = read(dialect, parts)
        assert found == text
        assert [name for name, _ in calls] == ["weather"] * count
        for _, arguments in calls:
            assert json.loads(arguments) == json.loads(ARGUMENTS)


@pytest.mark.parametrize("begun", ['{"a": "', '{"name": "', "{" + " " * 300, '{"x": ['])
@pytest.mark.parametrize("dialect", [TAGGED, BARE])
def test_what_never_becomes_a_call_takes_time_in_proportion_to_its_length(
    dialect: ToolDialect, begun: str
) -> None:
    """Counted in lines of the reader that are run."""
    reader = MessageForm(dialect=dialect).reader()
    reader.push("<tool_call>" + begun if dialect is TAGGED else begun)

    def lines_of(pushes: int) -> int:
        lines = 0

        def count(_frame: object, event: str, _argument: object) -> object:
            nonlocal lines
            lines += event == "line"
            return count

        sys.settrace(count)
        try:
            for _ in range(pushes):
                assert reader.push("more ") == []
        finally:
            sys.settrace(None)
        return lines

    early = lines_of(40)
    lines_of(80)
    assert lines_of(40) < 1.2 * early


def test_arguments_are_given_out_as_they_come() -> None:
    reader = MessageForm(dialect=TAGGED).reader()
    assert reader.push("<tool_call>\n") == []
    assert reader.push('{"name": "f", "argu') == []
    assert reader.push('ments": {"a": ') == [
        CallBegins(index=0, name="f"),
        CallArguments(index=0, text='{"a": '),
    ]
    assert reader.push("1") == [CallArguments(index=0, text="1")]
    assert reader.push("}}\n</tool_call>") == [CallArguments(index=0, text="}")]
    assert reader.flush() == []


def test_the_template_tells_how_its_model_calls() -> None:
    assert dialect_of("{{ tools }} within <tool_call></tool_call> tags") is TAGGED
    llama = 'Respond with {"name": ..., "parameters": ...} {{ tools }} ipython'
    assert dialect_of(llama) is BARE
    assert dialect_of("<tool_call><function=x> {{ tools }}") is None
    assert dialect_of("<tool_call><function=x><parameter=y> {{ tools }}") is XML
    assert dialect_of("[TOOL_CALLS] {{ tools }}") is MISTRAL
    assert dialect_of(deepseek()) is DEEPSEEK
    assert dialect_of(FINAL) is HARMONY
