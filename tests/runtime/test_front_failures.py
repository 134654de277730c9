"""What instances fail of: another answers, and who failed is left alone for a while."""

import asyncio
import itertools
import random
from collections import Counter

import pytest
from front_rig import CHAT, PATIENCE_S, TEXT, WORDS, Front, client_get, with_front

COMMENT = b": waiting\n\n"


@pytest.mark.parametrize(
    ("mode", "stream"),
    [("errors", True), ("errors", False), ("garbage", True), ("garbage", False), ("silent", True)],
)
def test_what_fails_before_the_first_token_is_answered_by_another_and_isolated(
    mode: str, stream: bool
) -> None:
    async def test(front: Front) -> None:
        answers = [await front.ask({**CHAT, "stream": stream}) for _ in range(3)]
        assert [one.instance for one in answers] == ["good"] * 3
        assert all(one.status == 200 for one in answers)
        bad = front.instances["bad"].engine
        assert bad is not None
        assert len(bad.asked) == 1
        trouble = front.balance.trouble_of("bad")
        assert trouble is not None
        assert trouble.failures == 1
        health = await client_get(front, "/health")
        assert health.body["instances"]["bad"]["open"] is False
        assert health.body["instances"]["bad"]["message"] == trouble.reason
        assert health.body["instances"]["good"]["requests_answered"] == 3

    mode, silent = ("well", "bad") if mode == "silent" else (mode, "")
    with_front({"bad": f"m:mode={mode}", "good": "m"}, test, silent=silent)


@pytest.mark.parametrize(
    ("said", "told"), [("7", "7"), ("9" * 400, "3600"), ("soon", "2"), ("-1", "2")]
)
def test_a_full_instance_is_tried_again_within_an_hour(said: str, told: str) -> None:
    async def test(front: Front) -> None:
        engine = front.instances["a"].engine
        assert engine is not None
        engine.behaviour["retry_after"] = said
        answer = await front.ask(CHAT)
        assert answer.status == 429
        assert answer.headers["retry-after"] == told

    with_front({"a": "m:mode=full"}, test)


def test_a_refusal_is_passed_on_whatever_its_header_says() -> None:
    async def test(front: Front) -> None:
        told = await front.ask(CHAT)
        assert told.status == 400
        assert told.body == {"error": "no"}
        assert told.headers["content-type"] == "application/json"

    with_front({"a": "m:mode=refuses"}, test)


def test_events_without_a_token_are_not_kept_for_ever() -> None:
    async def test(front: Front) -> None:
        told = await front.ask({**CHAT, "stream": True})
        assert told.instance == "good"
        trouble = front.balance.trouble_of("bad")
        assert trouble is not None
        assert "1001 events without a token" in trouble.reason

    with_front({"bad": "m:mode=empty", "good": "m"}, test)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams say that they live several times while an engine writes a comment."""
    monkeypatch.setattr("runtime.api.client_stream.QUIET_S", 0.01)


def pass_time(front: Front, seconds: float) -> None:
    """Once the client has what it is being given: how long that takes is no instance's fault."""

    def tick() -> None:
        front.lateness_clock.now_s += seconds

    asyncio.get_running_loop().call_soon(tick)


@pytest.mark.usefixtures("impatient")
def test_a_stream_of_comments_alone_is_late_and_another_answers() -> None:
    async def test(front: Front) -> None:
        def hear(piece: bytes) -> None:
            if piece == COMMENT and front.balance.trouble_of("bad") is None:
                pass_time(front, PATIENCE_S / 2 + 1)

        told = await front.ask({**CHAT, "stream": True}, hear=hear)
        assert (told.status, told.text) == (200, WORDS)
        trouble = front.balance.trouble_of("bad")
        assert trouble is not None
        assert "it sent no token for 90 s, though its stream went on" in trouble.reason
        assert told.pieces.count(COMMENT) >= 2  # the first was not too late

    models = {"bad": "m:mode=comments,break_after=0", "good": "m"}
    with_front(models, test, whole_answer_s=PATIENCE_S / 2)


@pytest.mark.usefixtures("impatient")
def test_a_stream_that_ends_in_comments_is_told_to_be_broken() -> None:
    async def test(front: Front) -> None:
        def hear(piece: bytes) -> None:
            if piece == COMMENT:
                pass_time(front, PATIENCE_S + 1)

        told = await front.ask({**CHAT, "stream": True}, hear=hear)
        assert told.status == 200
        assert told.text == "w0 w1 "
        assert "no token for 90 s" in told.events[-1]["error"]["message"]
        assert front.balance.trouble_of("bad") is not None

    # after the first token the patience for a whole answer counts no more
    with_front({"bad": "m:mode=comments"}, test, whole_answer_s=10 * PATIENCE_S)


@pytest.mark.usefixtures("impatient")
def test_comments_before_the_first_token_are_believed_as_long_as_a_whole_answer_may_take() -> None:
    async def test(front: Front) -> None:
        engine = front.instances["a"].engine
        assert engine is not None
        heard = itertools.count(1)

        def hear(piece: bytes) -> None:
            if piece == COMMENT and not engine.released.is_set():
                pass_time(front, PATIENCE_S + 1)  # later than a token may be
                if next(heard) == 5:
                    engine.released.set()

        told = await front.ask({**CHAT, "stream": True}, hear=hear)
        assert told.status == 200
        assert told.text == WORDS
        assert front.balance.trouble_of("a") is None

    with_front({"a": "m:mode=comments,break_after=0"}, test, whole_answer_s=10 * PATIENCE_S)


def test_an_answer_that_takes_too_long_is_told_and_neither_isolates_nor_is_asked_again() -> None:
    async def test(front: Front) -> None:
        told = await front.ask({**CHAT, "max_tokens": 900})
        assert told.status == 504
        assert "ask for fewer tokens" in told.body["error"]["message"]
        assert front.balance.trouble_of("a") is None
        assert front.balance.under_way == 0
        engine = front.instances["b"].engine
        assert engine is not None
        assert not engine.asked

    with_front({"a": "m:step_s=0.002", "b": "m"}, test, whole_answer_s=0.05)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_engines_fail_of_is_asked_twice_and_isolates_nobody(stream: bool) -> None:
    async def test(front: Front) -> None:
        poison = {**CHAT, "stream": stream}
        for asked in (2, 4):  # as a client that tries again
            told = await front.ask(poison)
            assert told.status == 502
            engines = [one.engine for one in front.instances.values()]
            assert sum(len(engine.asked) for engine in engines if engine) == asked
            assert front.balance.open_instances() == ["a", "b", "c"]
        for _ in range(3):
            await front.ask({**poison, "max_tokens": 5})
        assert front.balance.open_instances() == []

    with_front(dict.fromkeys("abc", "m:mode=errors"), test)


def test_an_isolated_instance_is_tried_with_one_request_and_comes_back() -> None:
    async def test(front: Front) -> None:
        bad = front.instances["bad"].engine
        assert bad is not None
        rests = []
        for asked in range(1, 5):
            await front.ask(CHAT)
            assert len(bad.asked) == asked
            trouble = front.balance.trouble_of("bad")
            assert trouble is not None
            rests.append(trouble.until_s - front.clock.now_s)
            await front.ask(CHAT)
            assert len(bad.asked) == asked  # it rests
            front.clock.now_s = trouble.until_s
        assert rests == [1, 2, 4, 8]
        bad.behaviour |= {"mode": "held"}
        asked_first = asyncio.create_task(front.ask(CHAT))
        while front.balance.under_way_at("bad") == 0:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        told = await asyncio.gather(*(front.ask(CHAT) for _ in range(3)))
        assert Counter(one.instance for one in told) == {"good": 3}
        bad.released.set()
        assert (await asked_first).instance == "bad"
        assert front.balance.trouble_of("bad") is None
        told = await asyncio.gather(*(front.ask(CHAT) for _ in range(4)))
        assert Counter(one.instance for one in told) == {"bad": 2, "good": 2}

    with_front({"bad": "m:mode=errors", "good": "m"}, test, router="shortest_queue")


def test_a_stream_that_breaks_after_its_first_token_ends_with_an_error_that_says_so() -> None:
    async def test(front: Front) -> None:
        told = await front.ask({**TEXT, "stream": True})
        assert told.status == 200
        assert told.instance == "bad"
        assert told.text == "w0 w1 "
        assert told.events[-1]["error"]["code"] == "stream_broken"
        assert front.balance.trouble_of("bad") is not None
        assert (await front.ask({**TEXT, "stream": True})).text == WORDS

    with_front({"bad": "m:mode=breaks,break_after=2", "good": "m"}, test)


def test_a_stream_that_breaks_before_its_first_token_is_asked_of_another() -> None:
    async def test(front: Front) -> None:
        told = await front.ask({**CHAT, "stream": True})
        assert told.instance == "good"
        assert told.text == WORDS
        roles = [event["choices"][0]["delta"].get("role") for event in told.events]
        assert roles.count("assistant") == 1

    with_front({"bad": "m:mode=breaks,break_after=0", "good": "m"}, test)


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_too_long_for_one_context_is_answered_by_a_larger_one(stream: bool) -> None:
    async def test(front: Front) -> None:
        for _ in range(2):
            told = await front.ask({**TEXT, "max_tokens": 90, "stream": stream})
            assert (told.status, told.instance) == (200, "large")
        told = await front.ask({**TEXT, "max_tokens": 200, "stream": stream})
        assert told.status == 400
        assert "maximum context length is" in told.body["error"]["message"]
        assert front.balance.open_instances() == ["small", "large"]
        front.instances["large"].engine.behaviour["mode"] = "errors"
        told = await front.ask({**TEXT, "max_tokens": 90, "stream": stream})
        assert told.status == 502  # the larger one is at fault
        assert "small: the request is too long for its context" in told.body["error"]["message"]

    with_front({"small": "m:context=50", "large": "m:context=100"}, test)


def test_when_nobody_can_answer_every_reason_is_told() -> None:
    async def test(front: Front) -> None:
        told = await front.ask(CHAT)
        assert told.status == 502
        message = told.body["error"]["message"]
        assert "a: it answered 500" in message
        assert "b: it answered 500" in message
        assert (await front.ask(TEXT)).status == 502
        told = await front.ask(CHAT)
        assert told.status == 503
        assert told.headers["retry-after"] == "2"
        assert (await client_get(front, "/health")).status == 503

    with_front({"a": "m:mode=errors", "b": "m:mode=errors"}, test)


@pytest.mark.parametrize("seed", range(2))
def test_many_requests_over_instances_that_come_and_go_lose_none(seed: int) -> None:
    async def test(front: Front) -> None:
        chance = random.Random(seed)

        async def trouble() -> None:
            while True:
                engine = front.instances["bc"[seed]].engine
                assert engine is not None
                engine.behaviour["mode"] = chance.choice(["well", "errors", "garbage"])
                front.clock.now_s += 1.0
                await asyncio.sleep(0.01)

        async def one(number: int) -> str:
            await asyncio.sleep(chance.random() * 0.5)
            told = await front.ask({**TEXT, "stream": bool(number % 2)})
            return told.text if number % 2 else told.body["choices"][0]["text"]

        troubling = asyncio.create_task(trouble())
        answers = await asyncio.gather(*(one(number) for number in range(60)))
        troubling.cancel()
        assert set(answers) == {WORDS}
        assert front.balance.under_way == 0

    with_front({"a": "m:step_s=0.003", "b": "m:step_s=0.003", "c": "m"}, test)
