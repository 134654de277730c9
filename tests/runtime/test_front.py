"""The front over servers that speak vLLM's API in threads: routing and relaying."""

import asyncio
import time

import pytest
from front_rig import (
    CHAT,
    KEY,
    OTHER_KEY,
    OTHER_OWNER,
    OWNER,
    PATIENCE_S,
    READY,
    TEXT,
    WORDS,
    Front,
    client_get,
    with_front,
)
from prometheus_client.parser import text_string_to_metric_families

from runtime.front.main import parse_options
from runtime.instances.health import Condition, State


def test_answers_are_passed_on_with_the_name_that_clients_know() -> None:
    async def test(front: Front) -> None:
        for body in (CHAT, TEXT):
            whole = await front.ask(body)
            assert whole.status == 200
            assert whole.body["model"] == "llama"
            assert whole.body["usage"]["completion_tokens"] == 4
            streamed = await front.ask({**body, "stream": True})
            assert streamed.text == WORDS
            assert {event["model"] for event in streamed.events} == {"llama"}
            assert not any(event.get("usage") for event in streamed.events)
        asked = {"stream": True, "stream_options": {"include_usage": True}}
        streamed = await front.ask({**CHAT, **asked})
        assert streamed.events[-1]["usage"]["completion_tokens"] == 4
        assert front.balance.under_way == 0

    with_front({"a": "m"}, test)


def test_whoever_is_chosen_is_told_and_all_parameters_reach_the_engine() -> None:
    async def test(front: Front) -> None:
        told = [await front.ask({**CHAT, "top_k": 7, "their_own": [1]}) for _ in range(4)]
        assert [one.instance for one in told] == ["a", "b", "a", "b"]
        engine = front.instances["a"].engine
        assert engine is not None
        assert engine.asked[0].pop("cache_salt")
        assert engine.asked[0] == {**CHAT, "model": "m", "top_k": 7, "their_own": [1]}

    with_front({"a": "m", "b": "m"}, test)


def test_the_prefix_cache_of_an_instance_is_divided_by_key() -> None:
    async def test(front: Front) -> None:
        for key in (KEY, OTHER_KEY, KEY):
            assert (await front.ask(CHAT, key=key)).status == 200
            assert (await front.ask({**CHAT, "cache_salt": "theirs"}, key=key)).status == 200
        assert (await front.ask({**CHAT, "cache_salt": 5})).status == 200
        engine = front.instances["a"].engine
        assert engine is not None
        *salts, last = [one["cache_salt"] for one in engine.asked]
        assert len(set(salts)) == 4  # of two keys, each with a salt of its own and without
        assert salts[:2] == salts[4:]
        assert not {KEY, OWNER, OTHER_OWNER, "theirs"} & set(salts)
        assert last == 5  # the engine's to refuse
        front.send_to(
            "a", front.instances["a"].address.model_copy(update={"takes_cache_salt": False})
        )
        await front.ask(CHAT)
        assert "cache_salt" not in engine.asked[-1]

    with_front({"a": "m"}, test)


@pytest.mark.parametrize("stream", [True, False])
def test_half_a_surrogate_pair_and_numbers_beyond_all_bounds_are_passed_on(stream: bool) -> None:
    async def test(front: Front) -> None:
        odd = {**TEXT, "prompt": "a\ud800b", "n": 10**400, "max_completion_tokens": 10**400}
        told = await front.ask({**odd, "stream": stream})
        assert told.status == 200
        engine = front.instances["a"].engine
        assert engine is not None
        assert engine.asked[0]["prompt"] == "a\ud800b"
        assert engine.asked[0]["n"] == 10**400

    with_front({"a": "m:word=\ud800"}, test)


def test_a_request_that_is_wrong_is_refused_once_and_isolates_nobody() -> None:
    async def test(front: Front) -> None:
        for stream in (True, False):
            told = await front.ask({**CHAT, "max_tokens": 5000, "stream": stream})
            assert told.status == 400
            assert told.body["error"]["message"] == "max_tokens is too large"
        assert front.balance.open_instances() == ["a", "b"]
        engines = [one.engine for one in front.instances.values()]
        assert sum(len(engine.asked) for engine in engines if engine) == 2

    with_front({"a": "m", "b": "m"}, test)


def test_only_instances_that_are_ready_are_asked() -> None:
    async def test(front: Front) -> None:
        front.instances["a"].state = State(condition=Condition.DRAINING)
        assert {(await front.ask(CHAT)).instance for _ in range(3)} == {"b"}
        front.instances["b"].state = State(condition=Condition.UNWELL)
        assert (await front.ask(CHAT)).status == 503
        front.instances["a"].state = READY
        assert (await front.ask(CHAT)).instance == "a"

    with_front({"a": "m", "b": "m"}, test)


def test_a_client_that_hangs_up_ends_its_request_at_the_instance() -> None:
    async def test(front: Front) -> None:
        hang_up, engine = asyncio.Event(), front.instances["a"].engine
        assert engine is not None
        await front.ask(
            {**TEXT, "max_tokens": 900, "stream": True},
            hang_up=hang_up,
            hear=lambda piece: hang_up.set() if b"w3" in piece else None,
        )
        assert front.balance.under_way == 0
        deadline_s = time.monotonic() + PATIENCE_S
        while engine.running:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.01)

    with_front({"a": "m:step_s=0.01"}, test)


def test_tokens_go_to_the_client_as_they_come() -> None:
    async def test(front: Front) -> None:
        pieces: list[bytes] = []
        await front.ask({**TEXT, "stream": True}, hear=pieces.append)
        with_words = [piece for piece in pieces if b"w" in piece and b"DONE" not in piece]
        assert len(with_words) == 4

    with_front({"a": "m:step_s=0.02"}, test)


def test_without_a_key_or_for_another_model_nothing_is_asked() -> None:
    async def test(front: Front) -> None:
        assert (await front.ask(CHAT, key="wrong")).status == 401
        assert (await front.ask({**CHAT, "model": "m"})).status == 404
        assert (await front.ask({"messages": []})).status == 400
        engine = front.instances["a"].engine
        assert engine is not None
        assert not engine.asked

    with_front({"a": "m"}, test)


def test_health_tells_who_has_no_key_nothing_of_the_instances() -> None:
    async def test(front: Front) -> None:
        front.instances["a"].state = State(
            condition=Condition.UNWELL, message="its log ends: /home/ada/secret/model"
        )
        told = await client_get(front, "/health", key="wrong")
        assert (told.status, told.body) == (503, {"status": "no instance is ready"})
        message = (await client_get(front, "/health")).body["instances"]["a"]["message"]
        assert message == "its log ends: /home/ada/secret/model"

    with_front({"a": "m"}, test)


def test_metrics_tell_what_went_where_and_need_a_key() -> None:
    async def test(front: Front) -> None:
        for stream in (True, False):
            for _ in range(2):  # of a round, one is of each
                await front.ask({**TEXT, "stream": stream})
        assert (await client_get(front, "/metrics", key="wrong")).status == 401
        page = (await client_get(front, "/metrics")).pieces[0].decode()
        told = {
            (one.name, one.labels.get("instance")): one.value
            for family in text_string_to_metric_families(page)
            for one in family.samples
        }
        assert told["helix_front_requests", None] == 0
        for name, answers, failures, is_open in (("bad", 0, 1, 0), ("good", 4, 0, 1)):
            assert told["helix_front_answers_total", name] == answers
            assert told["helix_front_output_tokens_total", name] == 4 * answers
            assert told["helix_front_failures_total", name] == failures
            assert told["helix_front_instance_open", name] == is_open
            assert told["helix_front_instance_ready", name] == 1
            assert told["helix_front_requests_running", name] == 0

    with_front({"bad": "m:mode=errors", "good": "m"}, test)


def test_an_instance_that_gives_tokens_is_known_to() -> None:
    async def test(front: Front) -> None:
        for stream in (True, False):
            front.clock.now_s += 10
            await front.ask({**TEXT, "stream": stream})
            assert front.balance.produced_s("a") == front.clock.now_s
        assert front.balance.produced_s("b") is None

    with_front({"a": "m", "b": "m"}, test, router="single")


def test_lengths_of_answers_and_of_tokens_are_learnt_from_what_passes() -> None:
    async def test(front: Front) -> None:
        for _ in range(10):
            await front.ask({"prompt": "x" * 400, "max_tokens": 20, "stream": True})
        lengths = front.proxy.lengths
        assert lengths.predict("llama", OWNER, max_tokens=None) == 20
        assert lengths.predict("llama", OWNER, max_tokens=5) == 5

    with_front({"a": "m"}, test)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--port", "99999", "'99999' is no port; give 0 to 65535"),
        ("--request-timeout", "-1", "'-1' is not a number of seconds above 0"),
        ("--answer-timeout", "nan", "'nan' is not a number of seconds above 0"),
        ("--shutdown-grace", "soon", "'soon' is not a number of seconds above 0"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_its_value(
    capsys: pytest.CaptureFixture[str], option: str, value: str, told: str
) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--instances", "x.json", "--data-dir", "x", option, value])
    assert told in capsys.readouterr().err
