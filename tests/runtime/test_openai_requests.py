"""What clients may ask for, and the words with which the rest is refused."""

import contextlib
import json
import tracemalloc

import pytest

from runtime.protocol.openai import ApiError, parse_request
from runtime.protocol.openai_parameters import (
    ChatCompletionRequest,
    CompletionRequest,
    GenerationRequest,
)

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"model": "m", "prompt": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat(**changes: object) -> ChatCompletionRequest:
    return parse_request(ChatCompletionRequest, json.dumps(CHAT | changes).encode())


def completion(**changes: object) -> CompletionRequest:
    return parse_request(CompletionRequest, json.dumps(COMPLETION | changes).encode())


def test_everything_supported_is_read() -> None:
    request = chat(
        max_completion_tokens=5,
        temperature=0,
        top_p=0.5,
        top_k=3,
        seed=-1,
        stop=["a", "b"],
        stream=True,
        stream_options={"include_usage": True},
        user="someone",
        n=3,
        min_p=0.1,
        presence_penalty=-1.5,
        frequency_penalty=2,
        repetition_penalty=1.2,
        logit_bias={"7": -100, "8": 0.5},
        logprobs=True,
        top_logprobs=4,
        stop_token_ids=[3, 4],
        response_format={"type": "json_object"},
        return_token_ids=True,
    )
    assert request.alternatives == 4
    assert request.grammar == '{"type": "object"}'
    assert request.token_limit == 5
    assert request.stop_strings == ("a", "b")
    assert chat(stop="a", max_tokens=7).stop_strings == ("a",)
    assert chat(max_tokens=7).token_limit == 7
    assert chat().token_limit is None


def test_a_completion_asks_for_logprobs_by_number_and_a_chat_by_yes_and_number() -> None:
    assert completion(logprobs=3).alternatives == 3
    assert completion(logprobs=0).alternatives == 0
    assert completion().alternatives is None
    assert chat(logprobs=True).alternatives == 0
    assert chat(logprobs=False).alternatives is None


def test_a_schema_is_what_the_answer_must_follow() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    assert json.loads(chat(response_format=wanted).grammar) == schema
    assert chat(response_format={"type": "text"}).grammar == ""


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    assert chat(messages=[{"role": "user", "content": parts}]).messages[0].text == "one two"


def test_what_cannot_change_the_answer_is_accepted_and_named() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    part = {"type": "text", "text": "one", **cached}
    request = chat(
        messages=[{"role": "user", "content": [part]}],
        tools=[{**TOOL, **cached}],
        metadata={"a": "b"},
        store=False,
        user="someone",
        service_tier="auto",
        safety_identifier="x",
        prompt_cache_key="x",
        prediction={"type": "content", "content": "x"},
        verbosity="low",
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )
    assert request.ignored == {
        "messages.content.cache_control",
        "tools.cache_control",
        "metadata",
        "store",
        "user",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prediction",
        "verbosity",
        "stream_options.include_obfuscation",
    }


def test_what_changes_nothing_or_is_null_is_not_worth_a_word() -> None:
    request = chat(
        tools=[],
        tool_choice="auto",
        best_of=1,
        modalities=["text"],
        skip_special_tokens=True,
        max_tokens=5,
        max_completion_tokens=5,
        top_logprobs=0,
        store=None,
        audio=None,
        functions=None,
        web_search_options=None,
        some_parameter_of_tomorrow=None,
    )
    assert request.ignored == set()
    assert completion(echo=False, suffix="", best_of=1).ignored == set()


@pytest.mark.parametrize("kind", [ChatCompletionRequest, CompletionRequest])
def test_null_is_as_if_a_parameter_was_not_given(kind: type[GenerationRequest]) -> None:
    body = CHAT if kind is ChatCompletionRequest else COMPLETION
    optional = [name for name, field in kind.model_fields.items() if not field.is_required()]
    nulls = json.dumps({**dict.fromkeys(optional), **body}).encode()
    assert parse_request(kind, nulls) == parse_request(kind, json.dumps(body).encode())
    message = {"role": "user", "content": "hi", "name": None, "field_of_some_client": None}
    assert chat(messages=[message]).messages[0].text == "hi"
    options = chat(stream=True, stream_options={"include_usage": None}).stream_options
    assert options is not None
    assert not options.include_usage


def test_what_clients_send_by_default_is_accepted() -> None:
    """Bodies of code editors, chat pages, agent libraries, for models they do not know."""
    editor: dict[str, object] = {  # Continue, for a completion in the middle of a file
        "max_tokens": 4096,
        "temperature": 0.01,
        "stream": True,
        "stop": [f"<|stop_{number}|>" for number in range(9)]
        + ["/src/", "#- coding: utf-8", "```"],
    }
    assert len(completion(**editor).stop_strings) == 12
    assert len(chat(**editor).stop_strings) == 12
    page: dict[str, object] = {  # Open WebUI
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.8,
        "stop": ["###"],
        "logit_bias": {},
    }
    assert chat(**page).ignored == set()
    chain: dict[str, object] = {  # LangChain, for several completions of one prompt
        "temperature": 0.7,
        "max_tokens": 256,
        "top_p": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "n": 2,
        "best_of": 2,
    }
    assert completion(**chain).n == 2
    agent: dict[str, object] = {  # LlamaIndex, with a tool
        "temperature": 0.1,
        "max_tokens": None,
        "stream": False,
        "tools": [{"type": "function", "function": {"name": "f", "strict": False}}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }
    assert len(chat(**agent).usable_tools) == 1


def test_an_assistants_message_may_be_sent_back_as_it_came() -> None:
    answered = {
        "role": "assistant",
        "content": "Hello.",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning_content": "They greet me.",
    }
    refused = {"role": "assistant", "content": None, "refusal": "I cannot."}
    in_parts = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    messages = chat(messages=[answered, refused, in_parts]).messages
    assert [message.text for message in messages] == ["Hello.", "I cannot.", "No."]
    assert messages[0].thoughts == "They greet me."


@pytest.mark.parametrize(
    ("prompt", "single"),
    [("x", "x"), (["x"], "x"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2])],
)
def test_a_prompt_is_text_or_token_ids_bare_or_alone_in_a_list(
    prompt: object, single: object
) -> None:
    assert completion(prompt=prompt).single_prompt == single


@pytest.mark.parametrize(
    ("changes", "param", "code", "words"),
    [
        ({"foo": 1}, "foo", "unknown_parameter", "unknown parameter 'foo'; remove it"),
        ({"temprature": 1}, "temprature", "unknown_parameter", "did you mean 'temperature'?"),
        ({"functions": []}, "functions", "unknown_parameter", "not supported by this server; use"),
        ({"audio": {}}, "audio", "unknown_parameter", "not supported by this server"),
        ({"modalities": ["audio"]}, "modalities[0]", "invalid_value", "only 'text' is supported"),
        ({"add_generation_prompt": False}, "add_generation_prompt", "invalid_value", "is false"),
        ({"best_of": 2}, "best_of", "invalid_value", "is 2 and 'n' is 1"),
        ({"best_of": 3, "n": 2}, "best_of", "invalid_value", "the same value, or remove best_of"),
        ({"min_tokens": -1}, "min_tokens", "invalid_value", "is -1"),
        (
            {"chat_template_kwargs": {"messages": []}},
            "chat_template_kwargs",
            "invalid_value",
            "sets 'messages', which the server sets",
        ),
        (
            {"chat_template_kwargs": {"bos_token": "x"}},
            "chat_template_kwargs",
            "invalid_value",
            "sets 'bos_token'",
        ),
        ({"tools": [TOOL, TOOL]}, "tools", "invalid_value", "offers 'f' more than once"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value", "only allowed with 'tools'"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
            "invalid_value",
            "names 'g', 'tools' offers f; name one of these",
        ),
        (
            {"tools": [TOOL], "response_format": {"type": "json_object"}},
            "response_format",
            "invalid_value",
            "leaves no room for a call",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_call_id": "1"}]},
            "messages[0].tool_call_id",
            "invalid_value",
            'belongs to the role "tool"',
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]},
            "messages[0].tool_calls",
            "invalid_value",
            'belongs to the role "assistant"',
        ),
        (
            {"messages": [{"role": "assistant"}]},
            "messages[0].content",
            "missing_required_parameter",
            "'messages[0].content' is missing",
        ),
        ({"temperature": "hot"}, "temperature", "invalid_type", 'is "hot": input should be a'),
        ({"temperature": 3}, "temperature", "invalid_value", "is 3: input should be less than"),
        ({"temperature": True}, "temperature", "invalid_type", "is true: input should be"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value", "is 0: input should be greater"),
        ({"max_tokens": "5"}, "max_tokens", "invalid_type", 'is "5": input should be a valid int'),
        ({"top_p": 0}, "top_p", "invalid_value", "is 0: input should be greater than 0"),
        ({"top_k": -2}, "top_k", "invalid_value", "is -2"),
        ({"seed": 2**64}, "seed", "invalid_value", "is 18446744073709551616"),
        ({"n": 9}, "n", "invalid_value", "is 9: input should be less than or equal to 8"),
        ({"logprobs": 0}, "logprobs", "invalid_type", "is 0: input should be a valid boolean"),
        ({"top_logprobs": 3}, "top_logprobs", "invalid_value", 'only allowed with "logprobs"'),
        ({"frequency_penalty": 3}, "frequency_penalty", "invalid_value", "less than or equal to 2"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value", "greater than 0"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value", 'the key "x"; its keys are'),
        ({"logit_bias": {"1": 5, "01": -5}}, "logit_bias", "invalid_value", 'the key "01"'),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "invalid_value", "less than or equal to 100"),
        (
            {"logit_bias": {"9" * 5000: 1}},
            "logit_bias",
            "invalid_value",
            "9...; its keys are token",
        ),
        ({"logit_bias": {"\u0663": 1}}, "logit_bias", "invalid_value", "its keys are token ids"),
        (
            {"logit_bias": dict.fromkeys(map(str, range(2000)), 1)},
            "logit_bias",
            "invalid_value",
            "at most 1024 items, not 2000",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 1025}]},
            "messages[0].content",
            "invalid_value",
            "at most 1024 items",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "missing_required_parameter",
            "add it",
        ),
        (
            {"response_format": {"type": "yaml"}},
            "response_format.type",
            "invalid_value",
            "'text', 'json_object' or 'json_schema'",
        ),
        ({"stop": ["a"] * 33}, "stop", "invalid_value", "at most 32 items"),
        ({"stop": ["a", 1]}, "stop[1]", "invalid_type", "is 1: input should be a valid string"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "missing_required_parameter",
            "add it",
        ),
        (
            {"tool_choice": {"type": "function"}},
            "tool_choice.function",
            "missing_required_parameter",
            "add it",
        ),
        ({"tool_choice": "any"}, "tool_choice", "invalid_value", "or 'required'; or Input should"),
        (
            {"messages": [{"role": "user", "content": "x", "audio": {}}]},
            "messages[0].audio",
            "invalid_value",
            "is {}: only null is supported",
        ),
        (
            {"use_beam_search": True},
            "use_beam_search",
            "invalid_value",
            "is true: only false is supported",
        ),
        ({"response_format": "json"}, "response_format", "invalid_type", "should be an object"),
        ({"stop": {"a": 1}}, "stop", "invalid_type", 'is {"a": 1}: input should be a valid string'),
        (
            {"messages": [{"role": "user", "content": {"text": "x"}}]},
            "messages[0].content",
            "invalid_type",
            "a valid string; or Input should be a valid list",
        ),
        ({"stop": ""}, "stop", "invalid_value", "at least 1 character"),
        ({"stream": "yes"}, "stream", "invalid_type", 'is "yes": input should be a valid boolean'),
        ({"model": 5}, "model", "invalid_type", "is 5: input should be a valid string"),
        ({"messages": []}, "messages", "invalid_value", "at least 1 item"),
        ({"messages": "hi"}, "messages", "invalid_type", 'is "hi": input should be a valid list'),
        (
            {"messages": [{"role": "robot", "content": ""}]},
            "messages[0].role",
            "invalid_value",
            "'user', 'assistant' or 'tool'",
        ),
        (
            {"messages": [{"role": "user"}]},
            "messages[0].content",
            "missing_required_parameter",
            "add it",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0]",
            "invalid_type",
            'type "image_url" are not supported; supported are text, refusal',
        ),
        (
            {"messages": [{"role": "tool", "content": "4"}]},
            "messages[0].tool_call_id",
            "missing_required_parameter",
            "add it",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_call_id": "c"}]},
            "messages[0].tool_call_id",
            "invalid_value",
            'the role is "user"; remove it',
        ),
        (
            {"tools": [{"type": "custom", "custom": {"name": "f"}}]},
            "tools[0]",
            "invalid_type",
            'type "custom" are not supported; supported are function',
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}},
            "tool_choice",
            "invalid_type",
            'type "allowed_tools" are not supported; supported are function',
        ),
        (
            {"stream": True, "stream_options": {"x": 1}},
            "stream_options.x",
            "unknown_parameter",
            "remove it",
        ),
        (
            {"stream_options": {"include_usage": True}},
            "stream_options",
            "invalid_value",
            'only allowed with "stream": true',
        ),
        (
            {"max_tokens": 1, "max_completion_tokens": 2},
            "max_tokens",
            "invalid_value",
            "they mean the same, keep one",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_remedy(
    changes: dict[str, object], param: str, code: str, words: str
) -> None:
    with pytest.raises(ApiError) as caught:
        chat(**changes)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert caught.value.code == code
    assert words in caught.value.message
    assert caught.value.body()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (["a", "b"], "at most 1 item"),
        ([[1], [2]], "at most 1 item"),
        ([], "at least 1 item"),
        ([-1], "greater than or equal to 0"),
        (5, "is 5"),
        ([1, "a"], 'is [1, "a"]'),
    ],
)
def test_prompts_that_are_not_exactly_one_are_refused(prompt: object, words: str) -> None:
    with pytest.raises(ApiError, match="parameter 'prompt'") as caught:
        completion(prompt=prompt)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "the request body is not JSON"),
        (b"\xff", "the request body is not JSON"),
        (b"[]", "is []; send a JSON object"),
        (b"null", "is null; send a JSON object"),
        (b"[" * 100_000, "is nested too deeply; make it flatter"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "thousands of digits; write it shorter"),
        (b'{"prompt": "x"}', "required parameter 'model' is missing"),
        (b'{"model": "m", "prompt": "x", "temperature": NaN}', "finite number"),
        (b'{"model": "m", "prompt": "\\ud800"}', "half of a surrogate pair"),
        (b'{"model": "m", "prompt": "x", "\\udc00": 1}', "half of a surrogate pair"),
        (b'{"model": "m", "prompt": "x", "stop": "\\uD83D \\uDE00"}', "half of a surrogate pair"),
        (b'{"model": "m", "prompt": "\xed\xa0\x80"}', "the request body is not JSON"),
        ('{"model": "m", "prompt": "x"}'.encode("utf-16"), "the request body is not JSON"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_request(CompletionRequest, body)
    assert words in caught.value.message


def test_characters_beyond_the_basic_plane_may_be_escaped() -> None:
    body = b'{"model": "m", "prompt": "\\ud83d\\ude00 \\\\ud800"}'
    assert parse_request(CompletionRequest, body).single_prompt == "😀 \\ud800"


@pytest.mark.parametrize(
    "changes",
    [{"messages": "x" * 10_000}, {"x" * 10_000: 1}, {"stream_options": {"x" * 10_000: 1}}],
)
def test_a_long_value_or_name_is_cut_in_the_message(changes: dict[str, object]) -> None:
    with pytest.raises(ApiError) as caught:
        chat(**changes)
    assert len(caught.value.message) < 450
    assert len(caught.value.param or "") <= 80


@pytest.mark.parametrize("levels", [300, 900, 960, 980, 1000, 100_000])
@pytest.mark.parametrize(
    "given",
    [
        '"temperature": %s',
        '"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": '
        '{"x": %s}}}',
    ],
)
def test_what_is_nested_however_deeply_is_read_or_refused(levels: int, given: str) -> None:
    deep = given % ("[" * levels + "]" * levels)
    body = '{"model": "m", "messages": [{"role": "user", "content": "x"}], ' + deep + "}"
    with contextlib.suppress(ApiError):
        request = parse_request(ChatCompletionRequest, body.encode())
        assert request.grammar.count("[") == levels


@pytest.mark.parametrize(
    "prompt", [["a"] * 20_000, [-1] * 20_000, [[-1] * 20_000]], ids=["texts", "ids", "nested"]
)
def test_a_long_list_of_wrong_things_is_refused_at_the_first(prompt: object) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ApiError):
            completion(prompt=prompt)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 20_000 * 100  # a complaint about each would be several times that
