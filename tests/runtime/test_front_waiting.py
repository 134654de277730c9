"""Requests wait for an instance, are told that they do, and are cut when the front ends."""

import asyncio
import time

import pytest
from free_port import free_port
from front_rig import (
    CHAT,
    KEY,
    OTHER_KEY,
    PATIENCE_S,
    READY,
    TEXT,
    WORDS,
    Front,
    Told,
    client_get,
    stand_in,
    with_front,
)

from runtime.instances.health import Condition, State


def test_a_request_waits_for_an_instance_that_opens() -> None:
    async def test(front: Front) -> None:
        front.instances["a"].state = State(condition=Condition.UNWELL, since_s=front.clock.now_s)
        asking = [asyncio.create_task(front.ask({**CHAT, "stream": True})) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0.01)
            front.balance.observe()
        assert not any(one.done() for one in asking)
        front.instances["a"].state = READY
        front.balance.observe()
        assert [(await one).text for one in asking] == [WORDS] * 3

    with_front({"a": "m"}, test, hold_s=PATIENCE_S)


@pytest.mark.parametrize(
    ("ready_in_s", "retry_after"), [(None, "10"), (240.0, "240")], ids=["unknown", "known"]
)
def test_a_request_does_not_wait_for_a_model_that_loads_for_minutes(
    ready_in_s: float | None, retry_after: str
) -> None:
    async def test(front: Front) -> None:
        loading = "reading weights, file 1 of 2, 40 s"
        front.instances["a"].state = State(
            condition=Condition.STARTING, since_s=-40, message=f"{loading}; its log ends: prompt"
        )
        front.instances["a"].ready_in_s = ready_in_s
        refused = await front.ask(CHAT)
        assert (refused.status, refused.headers["retry-after"]) == (503, retry_after)
        assert refused.body["error"]["code"] == "not_ready"
        assert f"a: starting: {loading}" in refused.body["error"]["message"]
        assert "prompt" not in refused.body["error"]["message"]

    with_front({"a": "m"}, test, hold_s=PATIENCE_S)


def test_a_request_waits_for_a_model_that_loaded_within_seconds_the_last_time() -> None:
    async def test(front: Front) -> None:
        front.instances["a"].state = State(condition=Condition.STARTING, since_s=-40)
        front.instances["a"].ready_in_s = 3.0
        asking = asyncio.create_task(front.ask({**CHAT, "stream": True}))
        for _ in range(5):
            await asyncio.sleep(0.01)
            front.balance.observe()
        assert not asking.done()
        front.instances["a"].state = READY
        front.balance.observe()
        assert (await asking).text == WORDS

    with_front({"a": "m"}, test, hold_s=PATIENCE_S)


def test_a_request_that_reached_nobody_waits_and_is_told_why_in_the_end() -> None:
    async def test(front: Front) -> None:
        away = front.instances["a"].address.model_copy(
            update={"url": f"http://127.0.0.1:{free_port()}"}
        )
        front.send_to("a", away)
        asking = asyncio.create_task(front.ask({**CHAT, "stream": True}))
        deadline_s = time.monotonic() + PATIENCE_S
        while front.balance.trouble_of("a") is None:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.01)
        assert not asking.done()
        with stand_in("m") as back:
            front.send_to("a", back.address)
            front.clock.now_s += 10
            front.balance.observe()
            assert (await asking).text == WORDS

    with_front({"a": "m"}, test, hold_s=PATIENCE_S)

    async def in_vain(front: Front) -> None:
        away = front.instances["a"].address.model_copy(
            update={"url": f"http://127.0.0.1:{free_port()}"}
        )
        front.send_to("a", away)
        told = await front.ask(CHAT)
        assert told.status == 503
        assert "a: it cannot be reached" in told.body["error"]["message"]

    with_front({"a": "m"}, in_vain)


def test_a_front_that_closes_refuses_who_comes_or_waits_and_lets_answers_end() -> None:
    async def test(front: Front) -> None:
        engine = front.instances["a"].engine
        assert engine is not None
        asking = asyncio.create_task(front.ask({**CHAT, "stream": True}))
        while not engine.asked:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        front.instances["a"].state = State(condition=Condition.UNWELL, since_s=front.clock.now_s)
        waiting = asyncio.create_task(front.ask(CHAT))
        while front.balance.here < 2:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        front.balance.close()
        for told in (await waiting, await front.ask(CHAT)):
            assert told.status == 503
            assert told.body["error"]["code"] == "stopping"
            assert told.headers["retry-after"] == "2"
        assert (await client_get(front, "/health")).body["status"] == "stopping"
        engine.released.set()
        assert (await asking).text == WORDS
        assert front.balance.here == 0

    with_front({"a": "m:mode=held"}, test, hold_s=PATIENCE_S)


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_is_cut_by_the_end_of_the_front_says_so(stream: bool) -> None:
    async def test(front: Front) -> None:
        def hear(piece: bytes) -> None:
            if b"w3" in piece:
                front.balance.cut.set()

        body = {**TEXT, "max_tokens": 900, "stream": stream}
        asking = asyncio.create_task(front.ask(body, hear=hear))
        if stream:
            assert (await asking).events[-1]["error"]["code"] == "stopping"
        else:
            while not front.balance.under_way:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            front.balance.cut.set()
            assert (await asking).status == 503
        assert front.balance.here == front.balance.under_way == 0

    with_front({"a": "m:step_s=0.01"}, test)


def test_requests_that_wait_for_an_instance_count_and_are_told_that_they_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.api.client_stream.QUIET_S", 0.02)
    monkeypatch.setattr("runtime.front.backend.MOST_UNDER_WAY", 1)

    async def test(front: Front) -> None:
        front.instances["a"].state = State(condition=Condition.UNWELL, since_s=front.clock.now_s)
        heard = asyncio.Event()
        waits = front.ask({**TEXT, "stream": True}, hear=lambda _: heard.set())
        waiting = asyncio.create_task(waits)
        await asyncio.wait_for(heard.wait(), PATIENCE_S)
        told = await front.ask(TEXT)
        assert told.status == 429
        front.instances["a"].state = READY
        front.balance.observe()
        told = await waiting
        assert told.pieces[0] == b": waiting\n\n"
        assert told.text == WORDS

    with_front({"a": "m"}, test, hold_s=PATIENCE_S)


def test_a_stream_that_waits_for_its_first_token_says_that_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.api.client_stream.QUIET_S", 0.05)

    async def test(front: Front) -> None:
        engine = front.instances["a"].engine
        assert engine is not None
        told = await front.ask({**TEXT, "stream": True}, hear=lambda _: engine.released.set())
        assert told.pieces[0] == b": waiting\n\n"
        assert told.text == WORDS

    with_front({"a": "m:mode=opened"}, test)


def test_who_waits_for_a_place_goes_in_a_fair_order_of_keys() -> None:
    async def test(front: Front) -> None:
        engine = front.instances["a"].engine
        assert engine is not None
        began: list[str] = []

        def ask(name: str, key: str) -> asyncio.Task[Told]:
            def hear(piece: bytes) -> None:
                if b"w0" in piece:
                    began.append(name)

            body = {**TEXT, "max_tokens": 2, "prompt": name, "stream": True}
            return asyncio.create_task(front.ask(body, key=key, hear=hear))

        asked = [ask("first", KEY)]
        while not engine.asked:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)
        for number in range(4):
            asked.append(ask(f"greedy {number}", KEY))
            while len(front.balance.turns) < number + 1:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        asked.append(ask("other", OTHER_KEY))
        while len(front.balance.turns) < 5:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        assert len(engine.asked) == 1
        assert (await client_get(front, "/health")).status == 200
        engine.released.set()
        for told in asyncio.as_completed(asked):
            assert (await told).status == 200
        assert began == ["first", "other", *(f"greedy {number}" for number in range(4))]
        assert len(front.balance.turns) == front.balance.here == 0

    with_front({"a": "m:mode=held"}, test, most_requests=1)


def test_who_finds_no_place_in_time_or_leaves_the_line_is_told_and_forgotten() -> None:
    async def test(front: Front) -> None:
        engine = front.instances["a"].engine
        assert engine is not None
        first = asyncio.create_task(front.ask({**TEXT, "stream": True}))
        while not engine.asked:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)
        gone = asyncio.Event()
        leaving = asyncio.create_task(front.ask(TEXT, hang_up=gone))
        while not front.balance.turns:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        gone.set()
        await leaving
        assert not front.balance.turns
        told = await front.ask(TEXT)
        assert told.status == 429
        assert told.body["error"]["code"] == "queue_full"
        engine.released.set()
        assert (await first).text == WORDS

    with_front({"a": "m:mode=held"}, test, most_requests=1, whole_answer_s=0.2)
