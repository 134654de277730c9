"""The HTTP face over a real socket: answers, streams, refusals, clients that hang up."""

import asyncio
import gzip
import itertools
import json
from pathlib import Path

import httpx
import pytest
from coordinator_doubles import RANGES, make_serving, write_checkpoint
from coordinator_rig import EOS, KEY, Rig, with_coordinator
from starlette.routing import Route

from runtime.api.error_answers import MAX_BODY_BYTES
from runtime.dialects import DIALECTS
from runtime.protocol.data import Reason
from runtime.transport.heartbeats import Loss, PeerEvent


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint")


def test_a_chat_is_answered_whole_with_usage_and_where_it_ran(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        response = await h.chat(return_token_ids=True)
        assert response.status_code == 200
        body = response.json()
        tokenizer = h.serving.tokenizer
        prompt = tokenizer.encode_text("<|bos|><|user|>hi<|assistant|>")
        answer = [*tokenizer.encode_text("Grüße, 😀!"), EOS]
        assert body["id"] == response.headers["x-request-id"] == "chatcmpl-0001"
        assert body["object"] == "chat.completion"
        assert body["created"] == 1_700_000_000
        assert body["model"] == "tiny"
        assert body["system_fingerprint"] == "helixweb-1-7"
        assert body["prompt_token_ids"] == prompt
        assert body["choices"] == [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Grüße, 😀!"},
                "token_ids": answer,
                "finish_reason": "stop",
            }
        ]
        assert body["usage"] == {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(answer),
            "total_tokens": len(prompt) + len(answer),
        }
        hops = body["helix"]["pipeline"]
        assert [hop["first"] for hop in hops[1:]] == [hop["end"] for hop in hops[:-1]]
        assert hops[-1]["end"] == 6
        assert body["helix"]["queue_s"] == 0
        assert len(bytes.fromhex(body["helix"]["request"])) == 8
        assert body["helix"]["ttft_s"] is not None
        h.assert_idle()

    with_coordinator(checkpoint, visit)


def test_a_stream_has_whole_characters_one_finish_and_usage_when_asked(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        events = await h.stream(stream_options={"include_usage": True}, return_token_ids=True)
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert events[0]["object"] == "chat.completion.chunk"
        assert len(events[0]["prompt_token_ids"]) == 5
        middle, last, usage = events[1:-2], events[-2], events[-1]
        pieces = [event["choices"][0]["delta"].get("content", "") for event in [*middle, last]]
        assert "".join(pieces) == "Grüße, 😀!"
        assert not any("\ufffd" in piece for piece in pieces)
        assert all(event["choices"][0]["finish_reason"] is None for event in middle)
        assert last["choices"][0]["finish_reason"] == "stop"
        assert last["helix"]["pipeline"][0]["first"] == 0
        tokens = [token for e in [*middle, last] for token in e["choices"][0]["token_ids"]]
        assert len(tokens) == usage["usage"]["completion_tokens"]
        assert usage["choices"] == []
        assert len({event["id"] for event in events}) == 1
        plain = await h.stream()
        assert all("usage" not in event for event in plain)
        h.assert_idle()

    with_coordinator(checkpoint, visit)


def test_a_stop_string_is_cut_out_of_stream_and_whole_answer_alike(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        whole = (await h.chat(stop=["STOP", "xyz"])).json()
        events = await h.stream(stop=["STOP", "xyz"])
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
        assert whole["choices"][0]["message"]["content"] == text == "before ST "
        assert whole["choices"][0]["finish_reason"] == "stop"
        h.assert_idle()

    with_coordinator(checkpoint, visit, text="before ST STOP after")


def test_a_completion_takes_text_or_token_ids_and_stops_at_16_tokens(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        first = (await h.post("/v1/completions", prompt="hi")).json()
        again = (await h.post("/v1/completions", prompt=[71, 72])).json()
        assert first["object"] == "text_completion"
        assert first["choices"][0]["text"] == again["choices"][0]["text"] == "a" * 16
        assert first["choices"][0]["finish_reason"] == "length"
        foreign = await h.post("/v1/completions", prompt=[261])
        assert foreign.status_code == 400
        assert "token id 261 is not in the vocabulary" in foreign.json()["error"]["message"]

    with_coordinator(checkpoint, visit, text="a" * 40)


def test_a_completions_prompt_ids_are_in_each_choice_as_vllm_has_them(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        asked = {"prompt": [71, 72], "return_token_ids": True, "n": 2, "max_tokens": 1}
        whole = (await h.post("/v1/completions", **asked)).json()
        assert [choice["prompt_token_ids"] for choice in whole["choices"]] == [[71, 72]] * 2
        assert "prompt_token_ids" not in whole
        streamed = (await h.post("/v1/completions", stream=True, **asked)).text
        first = json.loads(streamed.partition("\n\n")[0].removeprefix("data: "))
        assert [choice["prompt_token_ids"] for choice in first["choices"]] == [[71, 72]] * 2
        assert streamed.count("prompt_token_ids") == 2

    with_coordinator(checkpoint, visit)


def test_sampling_parameters_reach_the_stages(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        await h.chat(temperature=0.5, top_p=0.25, top_k=7, seed=-1, max_tokens=3)
        await h.chat()
        given, default = (route.sampling for route in h.stages.routes.values())
        assert (given.temperature, given.top_p, given.top_k) == (0.5, 0.25, 7)
        assert given.seed == 2**64 - 1
        assert given.max_tokens == 3
        assert given.stop_token_ids == (EOS,)
        assert (default.temperature, default.top_p, default.top_k, default.seed) == (1, 1, 0, 11)
        assert default.max_tokens == 256 - 5

    with_coordinator(checkpoint, visit)


def test_nothing_but_health_answers_without_a_known_key(checkpoint: Path) -> None:
    paths = ["/v1/chat/completions", "/v1/completions", "/v1/models", "/nowhere", "/docs", "/"]
    headers = [None, "Bearer wrong", "Bearer", "Basic abc", f"Bearer{KEY}", KEY]

    async def visit(h: Rig) -> None:
        async with httpx.AsyncClient(base_url=h.client.base_url) as stranger:
            for path, header in itertools.product(paths, headers):
                response = await stranger.get(
                    path, headers={} if header is None else {"Authorization": header}
                )
                assert response.status_code == 401
                assert response.headers["www-authenticate"] == "Bearer"
                assert response.json()["error"]["code"] == "invalid_api_key"
            assert (await stranger.get("/health")).status_code == 200
        h.keys.replace(())
        assert (await h.chat()).status_code == 401

    with_coordinator(checkpoint, visit)


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"foo": 1}, 400, "unknown_parameter", "unknown parameter 'foo'"),
        ({"temperature": "hot"}, 400, "invalid_type", 'is "hot"'),
        ({"model": "gpt-5"}, 404, "model_not_found", "'gpt-5' is not served here; available: 'tin"),
        (
            {"messages": [{"role": "user", "content": "x" * 300}]},
            400,
            "context_length_exceeded",
            "the prompt has 303 tokens, but this deployment's context holds 256",
        ),
        ({"max_tokens": 252}, 400, "context_length_exceeded", "ask for at most 251"),
        (
            {"messages": [{"role": "assistant", "content": "x"}]},
            400,
            "invalid_value",
            "the user must speak first",
        ),
    ],
)
def test_a_bad_request_gets_an_error_object_and_starts_nothing(
    checkpoint: Path, body: dict[str, object], status: int, code: str, words: str
) -> None:
    async def visit(h: Rig) -> None:
        response = await h.chat(**body)
        assert response.status_code == status
        error = response.json()["error"]
        assert error["code"] == code
        assert words in error["message"]
        assert set(error) == {"message", "type", "param", "code"}
        assert not h.stages.sent

    with_coordinator(checkpoint, visit)


@pytest.mark.parametrize("param", ["max_tokens", "max_completion_tokens"])
def test_a_limit_beyond_the_context_is_refused_by_the_name_that_was_given(
    checkpoint: Path, param: str
) -> None:
    async def visit(h: Rig) -> None:
        response = await h.chat(**{param: 252})
        assert response.json()["error"]["param"] == param

    with_coordinator(checkpoint, visit)


def test_a_full_queue_answers_429_with_retry_after(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        h.may_step.clear()
        calls = []
        while h.dispatcher.requests_waiting < 2:
            calls.append(asyncio.create_task(h.chat(max_tokens=20)))
            before = len(calls)
            await h.until(
                lambda before=before: (  # type: ignore[misc]
                    h.dispatcher.requests_running + h.dispatcher.requests_waiting == before
                )
            )
        refused = await h.chat(max_tokens=20)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["error"]["code"] == "queue_full"
        h.may_step.set()
        answers = await asyncio.gather(*calls)
        assert {answer.status_code for answer in answers} == {200}
        h.assert_idle()

    with_coordinator(checkpoint, visit, pages=80)


def test_before_the_first_stages_are_up_requests_get_503_naming_them(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        h.dispatcher.serve(None)
        h.dispatcher.serve(make_serving(checkpoint, generation=8))
        response = await h.chat()
        assert response.status_code == 503
        assert response.headers["retry-after"] == "2"
        assert "waiting for the stages of: a, b, c, d" in response.json()["error"]["message"]
        health = await h.client.get("/health")
        assert health.status_code == 503
        assert health.json()["status"] == "waiting for stages"
        assert health.json()["missing_nodes"] == sorted(RANGES)
        assert health.json()["silent_nodes"] == sorted(RANGES)
        h.dispatcher.serve(None)
        assert (await h.client.get("/health")).json()["status"] == "no plan"
        assert (await h.client.get("/v1/models")).json()["data"] == []

    with_coordinator(checkpoint, visit)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_frees_the_kv_cache(checkpoint: Path, stream: bool) -> None:
    async def visit(h: Rig) -> None:
        h.may_step.clear()
        call = asyncio.create_task(h.chat(stream=stream))
        await h.until(lambda: h.dispatcher.requests_running == 1)
        call.cancel()
        await h.until(lambda: h.dispatcher.requests_running == 0)
        h.assert_idle()
        assert all(h.serving.kv.used_token_layers(node) == 0 for node in RANGES)

    with_coordinator(checkpoint, visit)


def test_a_client_that_does_not_read_does_not_hold_up_others(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        body = json.dumps(
            {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        ).encode()
        url = h.client.base_url
        _, writer = await asyncio.open_connection(url.host, url.port, limit=1)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await h.until(lambda: h.stats.output_tokens_total > 0)
        answers = await asyncio.gather(*(h.chat(max_tokens=5) for _ in range(5)))
        assert all(answer.status_code == 200 for answer in answers)
        await h.until(lambda: h.dispatcher.requests_running == 0)
        writer.close()
        h.assert_idle()

    with_coordinator(checkpoint, visit, text="x" * 200)


def test_a_refusing_stage_is_an_error_object_or_the_last_event(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        h.may_step.clear()

        async def refuse() -> None:
            await h.until(lambda: h.dispatcher.requests_running == 1)
            (key,) = (key for key, nodes in h.stages.held.items() if nodes)
            h.stages.refuse(key, Reason.STAGE_ERROR)

        whole, _ = await asyncio.gather(h.chat(), refuse())
        assert whole.status_code == 500
        assert whole.json()["error"]["code"] == "stage_error"
        events, _ = await asyncio.gather(h.stream(), refuse())
        assert events[-1]["error"]["type"] == "server_error"
        assert "failed while computing" in events[-1]["error"]["message"]
        h.assert_idle()

    with_coordinator(checkpoint, visit)


def test_unknown_paths_methods_and_giant_bodies_get_error_objects(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        missing = await h.client.get("/v1/nothing")
        assert missing.status_code == 404
        assert "GET /v1/nothing" in missing.json()["error"]["message"]
        for path in ("/v1/completions/", "/v1/completion"):  # no redirect, which loses a body
            near = await h.client.post(path, json={})
            assert near.status_code == 404
            assert "did you mean /v1/completions?" in near.json()["error"]["message"]
        other = await h.client.get("/v1/completions")
        assert other.status_code == 405
        assert other.json()["error"]["message"].endswith("use POST")
        giant = await h.client.post("/v1/completions", content=b"x" * (MAX_BODY_BYTES + 1))
        assert giant.status_code == 413
        packed = await h.client.post(
            "/v1/completions", content=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}
        )
        assert packed.status_code == 415
        assert "compressed (gzip), which is not supported" in packed.json()["error"]["message"]
        (model,) = (await h.client.get("/v1/models")).json()["data"]
        assert model["id"] == "tiny"
        assert model["max_model_len"] == 256
        assert model["emulated"] is False

    with_coordinator(checkpoint, visit)


def test_a_model_on_emulated_nodes_says_so(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        (model,) = (await h.client.get("/v1/models")).json()["data"]
        assert model["emulated"] is True

    with_coordinator(checkpoint, visit, emulated=True)


def test_a_model_is_found_by_its_name_and_another_gets_the_names_there_are(
    checkpoint: Path,
) -> None:
    async def visit(h: Rig) -> None:
        (model,) = (await h.client.get("/v1/models")).json()["data"]
        assert (await h.client.get("/v1/models/tiny")).json() == model
        other = await h.client.get("/v1/models/some/other")
        assert other.status_code == 404
        error = other.json()["error"]
        assert error["code"] == "model_not_found"
        assert "'some/other' is not served here; available: 'tiny'" in error["message"]
        h.dispatcher.serve(None)
        gone = await h.client.get("/v1/models/tiny")
        assert gone.status_code == 404
        assert "none yet" in gone.json()["error"]["message"]

    with_coordinator(checkpoint, visit)


@pytest.mark.parametrize("lost", [(), tuple(RANGES)], ids=["a stage hangs", "no pipeline"])
def test_a_stream_that_waits_for_stages_says_so_in_comments_and_goes_on(
    lost: tuple[str, ...], checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.api.client_stream.QUIET_S", 0.01)

    async def visit(h: Rig) -> None:
        h.may_step.clear()
        for node in lost:
            h.dispatcher.see(PeerEvent(peer=node, loss=Loss.ENDED, silent_s=0.0))
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        lines: list[str] = []
        async with h.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                lines.append(line)
                if line == ": waiting" and not h.may_step.is_set():
                    assert h.dispatcher.requests_waiting == bool(lost)
                    for node in h.serving.nodes:
                        h.dispatcher.see(PeerEvent(peer=node, loss=None, silent_s=0.0))
                        h.stages.restart(node)
                    h.may_step.set()
        assert ": waiting" in lines
        assert lines[-2:] == ["data: [DONE]", ""]
        spoken = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        assert not any("error" in event for event in spoken)
        assert "".join(event["choices"][0]["delta"].get("content") or "" for event in spoken) == (
            h.text
        )

    with_coordinator(checkpoint, visit)


def test_pipelines_say_that_they_have_no_embeddings(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        refused = await h.post("/v1/embeddings", input="hi")
        assert refused.status_code == 404
        assert refused.json()["error"]["code"] == "no_such_endpoint"
        assert "pipelines" in refused.json()["error"]["message"]

    with_coordinator(checkpoint, visit)


def test_the_openapi_document_is_given_to_who_has_a_key(checkpoint: Path) -> None:
    async def visit(h: Rig) -> None:
        response = await h.client.get("/openapi.json")
        assert response.status_code == 200
        document = response.json()
        assert document["openapi"] == "3.1.0"
        assert set(document["paths"]) == {
            route.path.replace("{name:path}", "{name}")
            for route in h.app.routes
            if isinstance(route, Route) and route.path != "/openapi.json"
        } | set(DIALECTS)
        refused = await h.client.get("/openapi.json", headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401

    with_coordinator(checkpoint, visit)
