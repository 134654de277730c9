"""Answers that follow a JSON schema, from real stages: every one that ended is whole JSON."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from coordinator_doubles import make_dispatcher, make_serving
from coordinator_rig import KEY, PATIENCE_S, Rig
from real_stages import CONTEXT_TOKENS, RealStages, make_checkpoint, with_real_stages
from test_openai_client import HI, WEATHER

from runtime.coordinator.answering import arriving
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.serving import Serving
from runtime.protocol.data import Sampling

HERMES = (
    "{% if tools %}Call within <tool_call></tool_call>: {{ tools | tojson }}{% endif %}"
    "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
KIND: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["red", "blue"]}},
    "required": ["kind"],
    "additionalProperties": False,
}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "kind", "schema": KIND}}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def biases(serving: Serving, *, long: float) -> dict[int, float]:
    """`long` for tokens of several characters that end with a bracket or a quotation mark."""
    chosen: dict[int, float] = {}
    for token_id in range(serving.tokenizer.vocabulary_size):
        text = serving.tokenizer.decode([token_id])
        if len(text) > 1 and text[-1] in '}]"':
            chosen[token_id] = long
    return chosen


def with_client(
    checkpoint: Path, visit: Callable[[Rig, openai.AsyncOpenAI], Awaitable[None]]
) -> None:
    async def run(h: Rig) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{h.url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE_S
        ) as client:
            await visit(h, client)

    with_real_stages(checkpoint, run)


@pytest.mark.processes
@pytest.mark.parametrize("long", [-100.0, 100.0], ids=["short tokens", "long tokens"])
def test_a_client_gets_whole_json_streamed_and_not_of_each_choice(
    checkpoint: Path, long: float
) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        bias = {str(token): bias for token, bias in biases(h.serving, long=long).items()}
        for limit in (None, 100):
            whole = await client.chat.completions.create(
                model="tiny",
                messages=HI,
                response_format=FORMAT,
                n=3,
                seed=5,
                logit_bias=bias,
                max_tokens=limit,
                logprobs=True,
                extra_body={"return_token_ids": True},
            )
            for choice in whole.choices:
                assert choice.finish_reason == "stop"
                assert json.loads(choice.message.content)["kind"] in ("red", "blue")
                last = h.serving.tokenizer.token_text(choice.token_ids[-1])
                assert (len(last) > 1) == (long > 0)
                told = "".join(token.token for token in choice.logprobs.content)
                assert told == choice.message.content
        texts = ["", "", ""]
        async for chunk in await client.chat.completions.create(
            model="tiny",
            messages=HI,
            response_format=FORMAT,
            n=3,
            seed=5,
            logit_bias=bias,
            stream=True,
        ):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        assert texts == [choice.message.content for choice in whole.choices]
        completion = await client.completions.create(
            model="tiny",
            prompt="hi",
            max_tokens=100,
            logit_bias=bias,
            seed=1,
            extra_body={"response_format": FORMAT},
        )
        assert json.loads(completion.choices[0].text)["kind"] in ("red", "blue")

    with_client(checkpoint, visit)


@pytest.mark.processes
def test_an_answer_ends_though_the_model_would_write_white_space_for_ever(
    checkpoint: Path,
) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        ids = range(h.serving.tokenizer.vocabulary_size)
        bias = {str(i): 100 for i in ids if h.serving.tokenizer.decode([i]).isspace()}
        answer = await client.chat.completions.create(
            model="tiny", messages=HI, response_format=FORMAT, logit_bias=bias
        )
        text = answer.choices[0].message.content
        assert json.loads(text)["kind"] in ("red", "blue")
        assert sum(map(str.isspace, text)) > 8

    with_client(checkpoint, visit)


@pytest.mark.processes
def test_a_stop_string_that_the_last_token_ends_is_cut_out(checkpoint: Path) -> None:
    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        bias = {str(token): bias for token, bias in biases(h.serving, long=100.0).items()}
        answer = await client.chat.completions.create(
            model="tiny", messages=HI, response_format=FORMAT, logit_bias=bias, stop=["}"]
        )
        assert json.loads(answer.choices[0].message.content + "}")["kind"] in ("red", "blue")

    with_client(checkpoint, visit)


@pytest.mark.processes
@pytest.mark.parametrize("long", [-100.0, 100.0], ids=["short tokens", "long tokens"])
def test_a_forced_call_has_whole_arguments_streamed_and_not(tmp_path: Path, long: float) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint")
    settings = json.loads((checkpoint / "tokenizer_config.json").read_text())
    (checkpoint / "tokenizer_config.json").write_text(
        json.dumps(settings | {"chat_template": HERMES})
    )
    tool: Any = {"type": "function", "function": WEATHER["function"] | {"parameters": KIND}}

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        bias = {str(token): bias for token, bias in biases(h.serving, long=long).items()}
        asked: Any = {"model": "tiny", "messages": HI, "tools": [tool], "logit_bias": bias}
        for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
            whole = await client.chat.completions.create(
                **asked, tool_choice=choice, seed=3, extra_body={"return_token_ids": True}
            )
            last = h.serving.tokenizer.token_text(whole.choices[0].token_ids[-1])
            assert (last == '"}}') == (long > 0)
            (call,) = whole.choices[0].message.tool_calls
            assert json.loads(call.function.arguments)["kind"] in ("red", "blue")
            streamed = ""
            async for chunk in await client.chat.completions.create(
                **asked, tool_choice=choice, seed=3, stream=True
            ):
                for part in chunk.choices[0].delta.tool_calls or ():
                    streamed += part.function.arguments
            assert streamed == call.function.arguments

    with_client(checkpoint, visit)


def random_schema(rng: random.Random, *, depth: int) -> dict[str, Any]:
    """Of a value whose text is bounded."""
    kind = rng.choice(("object", "array", "leaf") if depth else ("leaf",))
    if kind == "object":
        names = rng.sample(["kind", "on", "in", "of", "größe"], rng.randint(0, 3))
        return {
            "type": "object",
            "properties": {name: random_schema(rng, depth=depth - 1) for name in names},
            "required": names,
            "additionalProperties": False,
        }
    if kind == "array":
        items = random_schema(rng, depth=depth - 1)
        return {"type": "array", "items": items, "maxItems": rng.randint(0, 2)}
    return rng.choice(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"enum": ["red", "blue", "}", '"', "größer 😀"]},
            {"const": {"kind": ["red"]}},
            {"type": "integer", "minimum": -20, "maximum": 4000},
            {"type": "string", "maxLength": rng.randint(0, 4)},
        ]
    )


@pytest.mark.slow
def test_answers_to_random_schemas_are_json_that_follows_them(checkpoint: Path) -> None:
    rng = random.Random(20)
    serving = make_serving(checkpoint, max_context_tokens=CONTEXT_TOKENS, max_queued_requests=200)
    stages = RealStages(checkpoint)
    dispatcher, _ = make_dispatcher(stages, clock=lambda: 0.0)
    dispatcher.serve(serving)
    stages.report(pages=0)
    schemas = [random_schema(rng, depth=3) for _ in range(200)]

    def submit(schema: dict[str, Any], seed: int) -> LiveRequest:
        return dispatcher.submit(
            serving,
            prompt_ids=[60, 70, 80],
            sampling=Sampling(
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                seed=seed,
                max_tokens=CONTEXT_TOKENS - 3,
                stop_token_ids=serving.tokenizer.stop_token_ids,
                logit_bias=tuple(biases(serving, long=rng.choice((-5.0, 5.0))).items()),
                grammar=json.dumps(schema),
            ),
            stop_strings=(),
        )

    async def text_of(request: LiveRequest) -> str:
        told = arriving([request])
        return "".join([delta.text async for arrived in told for _, delta in arrived])

    requests = [submit(schema, seed) for seed, schema in enumerate(schemas)]
    while not all(request.is_complete for request in requests):
        stages.step()
    for schema, request in zip(schemas, requests, strict=True):
        text = asyncio.run(text_of(request))
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.processes
def test_a_schema_too_complex_where_only_this_answer_goes_is_the_requests_fault(
    checkpoint: Path,
) -> None:
    """The check before walks through the other alternative."""
    deep = {"type": "object", "properties": {f"p{number}": {} for number in range(500)}}
    alternatives = [
        {
            "type": "object",
            "properties": {key: value},
            "required": [key],
            "additionalProperties": False,
        }
        for key, value in (("a", deep), ("z", {"type": "null"}))
    ]
    schema = {"name": "deep", "schema": {"anyOf": alternatives}}

    async def visit(h: Rig, client: openai.AsyncOpenAI) -> None:
        tokenizer = h.serving.tokenizer
        bias = {str(token): value for token, value in biases(h.serving, long=-100.0).items()}
        for token in tokenizer.encode_text("a"):
            bias[str(token)] = 100.0
        asked: Any = {
            "model": "tiny", "messages": HI, "logit_bias": bias,
            "response_format": {"type": "json_schema", "json_schema": schema},
        }  # fmt: skip
        with pytest.raises(openai.BadRequestError, match="fewer references") as whole:
            await client.chat.completions.create(**asked)
        assert whole.value.code == "grammar_failed"
        with pytest.raises(openai.APIError, match="fewer references"):
            async for _ in await client.chat.completions.create(**asked, stream=True):
                pass

    with_client(checkpoint, visit)
