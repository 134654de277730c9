"""The front over servers that speak vLLM's API in threads: routing, relaying, isolating."""

import asyncio
import hashlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import stand_in_vllm
from starlette.applications import Starlette

from planner.routers.answer_length import QuantileLength
from planner.routers.base import RequestSize
from planner.routers.instance_choice import make_instance_router
from planner.routers.load_aware import InstanceSpeed
from runtime.coordinator.access import ApiKeys
from runtime.front.answer import Desk
from runtime.front.app import create_front
from runtime.front.asked import Asked, TokenLengths, read_asked
from runtime.front.balance import FIRST_REST_S, LONGEST_REST_S, Balance
from runtime.front.events import Event, EventReader, Garbage
from runtime.instances.command_lines import Door
from runtime.instances.engine_load import EngineLoad
from runtime.instances.health import Condition, State
from runtime.protocol.openai import ApiError

KEY = "hlx_key"
OWNER = hashlib.sha256(KEY.encode()).hexdigest()
READY = State(condition=Condition.READY)
PATIENCE_S = 20.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class There:
    """An instance that is there and that nobody starts or watches."""

    door: Door
    state: State = READY
    load: EngineLoad = field(default_factory=EngineLoad)
    engine: stand_in_vllm.Engine | None = None

    async def run(self) -> None: ...

    async def stop(self) -> None: ...

    def hurry(self) -> None: ...


@contextmanager
def stand_in(model: str, *, served: str = "m") -> Any:
    """A stand-in for vLLM in a thread of this process."""
    engine = stand_in_vllm.Engine(model)
    handler = type(
        "Here", (stand_in_vllm.Handler,), {"engine": engine, "served": served, "key": "k"}
    )
    server = stand_in_vllm.Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield There(door=Door(url=url, model=served, api_key="k"), engine=engine)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Front:
    """The app over `instances`, and what a client needs to ask it."""

    def __init__(
        self,
        instances: dict[str, There],
        *,
        router: str,
        http: httpx.AsyncClient,
        hold_s: float = 0.0,
        whole_answer_s: float = PATIENCE_S,
    ):
        self.clock = Clock()
        self.instances = instances
        self.balance = Balance(
            instances,
            router=make_instance_router(
                router,
                speeds={
                    name: InstanceSpeed(kv_room_tokens=4096, latency=None) for name in instances
                },
                weights=dict.fromkeys(instances, 1.0),
            ),
            clock=self.clock,
        )
        self.desk = Desk(
            model_name="llama",
            doors={name: one.door for name, one in instances.items()},
            balance=self.balance,
            lengths=QuantileLength(first_tokens=50, quantile=0.5),
            tokens=TokenLengths(),
            http=http,
            hold_s=hold_s,
            whole_answer_s=whole_answer_s,
        )
        self.app: Starlette = create_front(
            desk=self.desk, instances=instances, keys=ApiKeys([OWNER])
        )

    async def ask(self, body: dict[str, Any], **told: Any) -> "Told":
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        return await ask(self.app, path, {"model": "llama", **body}, **told)


@dataclass
class Told:
    """What a client got."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> Any:
        return json.loads(b"".join(self.pieces))

    @property
    def events(self) -> list[Any]:
        told = b"".join(self.pieces).decode()
        assert told.endswith("data: [DONE]\n\n")
        lines = [line[6:] for line in told.split("\n") if line.startswith("data: {")]
        return [json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        choices = [choice for event in self.events for choice in event.get("choices", [])]
        return "".join(
            choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices
        )

    @property
    def instance(self) -> str:
        return self.headers["x-helix-instance"]


async def ask(
    app: Starlette,
    path: str,
    body: dict[str, Any],
    *,
    key: str = KEY,
    hang_up: asyncio.Event | None = None,
    hear: Callable[[bytes], None] = lambda _: None,
) -> Told:
    told, sent = Told(), False
    gone = hang_up or asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": json.dumps(body).encode()}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            told.status = message["status"]
            told.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            told.pieces.append(message.get("body", b""))
            hear(told.pieces[-1])

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {key}".encode())],
    }
    await asyncio.wait_for(app(scope, receive, send), PATIENCE_S)  # type: ignore[arg-type]
    return told


class Silent(httpx.AsyncHTTPTransport):
    """Gives up at once on the server at `url`, which would say nothing until the timeout."""

    def __init__(self, url: str) -> None:
        super().__init__(trust_env=False)
        self._url = httpx.URL(url)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        if request.url.port == self._url.port:
            await answer.aclose()
            raise httpx.ReadTimeout("nothing came", request=request)
        return answer


def with_front(
    models: dict[str, str],
    test: Callable[[Front], Coroutine[Any, Any, None]],
    *,
    router: str = "round_robin",
    hold_s: float = 0.0,
    whole_answer_s: float = PATIENCE_S,
    silent: str = "",
) -> None:
    async def run() -> None:
        silent_url = instances[silent].door.url if silent else "nowhere"
        async with httpx.AsyncClient(transport=Silent(silent_url), timeout=PATIENCE_S) as http:
            await test(
                Front(
                    instances,
                    router=router,
                    http=http,
                    hold_s=hold_s,
                    whole_answer_s=whole_answer_s,
                )
            )

    with ExitStack() as stack:
        instances = {name: stack.enter_context(stand_in(model)) for name, model in models.items()}
        asyncio.run(run())


CHAT = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 4}
TEXT = {"prompt": "once upon", "max_tokens": 4}
WORDS = "w0 w1 w2 w3 "


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
        assert engine.asked[0] == {**CHAT, "model": "m", "top_k": 7, "their_own": [1]}

    with_front({"a": "m", "b": "m"}, test)


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


async def client_get(front: Front, path: str) -> Told:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(front.app), base_url="http://front"
    ) as http:
        answer = await http.get(path, headers={"Authorization": f"Bearer {KEY}"})
    return Told(status=answer.status_code, pieces=[answer.content])


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


def test_only_instances_that_are_ready_are_asked() -> None:
    async def test(front: Front) -> None:
        front.instances["a"].state = State(condition=Condition.DRAINING)
        assert {(await front.ask(CHAT)).instance for _ in range(3)} == {"b"}
        front.instances["b"].state = State(condition=Condition.UNWELL)
        assert (await front.ask(CHAT)).status == 503
        front.instances["a"].state = READY
        assert (await front.ask(CHAT)).instance == "a"

    with_front({"a": "m", "b": "m"}, test)


def test_a_request_waits_for_an_instance_that_opens() -> None:
    async def test(front: Front) -> None:
        front.instances["a"].state = State(condition=Condition.UNWELL)
        asking = [asyncio.create_task(front.ask({**CHAT, "stream": True})) for _ in range(3)]
        for _ in range(5):
            await asyncio.sleep(0.01)
            front.balance.observe()
        assert not any(one.done() for one in asking)
        front.instances["a"].state = READY
        front.balance.observe()
        assert [(await one).text for one in asking] == [WORDS] * 3

    with_front({"a": "m"}, test, hold_s=PATIENCE_S)


def test_a_request_that_reached_nobody_waits_and_is_told_why_in_the_end() -> None:
    async def test(front: Front) -> None:
        with stand_in("m") as away:
            pass  # it is gone again
        front.instances["a"].door = away.door
        front.desk.doors["a"] = away.door
        asking = asyncio.create_task(front.ask({**CHAT, "stream": True}))
        deadline_s = time.monotonic() + PATIENCE_S
        while front.balance.trouble_of("a") is None:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.01)
        assert not asking.done()
        with stand_in("m") as back:
            front.desk.doors["a"] = back.door
            front.clock.now_s += 10
            front.balance.observe()
            assert (await asking).text == WORDS

    with_front({"a": "m"}, test, hold_s=PATIENCE_S)

    async def in_vain(front: Front) -> None:
        with stand_in("m") as away:
            pass
        front.desk.doors["a"] = away.door
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
        front.instances["a"].state = State(condition=Condition.UNWELL)
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
    monkeypatch.setattr("runtime.front.answer.QUIET_S", 0.02)
    monkeypatch.setattr("runtime.front.app.MOST_UNDER_WAY", 1)

    async def test(front: Front) -> None:
        front.instances["a"].state = State(condition=Condition.UNWELL)
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


def test_a_stream_that_waits_for_its_first_token_says_that_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.front.answer.QUIET_S", 0.05)

    async def test(front: Front) -> None:
        told = await front.ask({**TEXT, "stream": True})
        assert told.pieces[0] == b": waiting\n\n"
        assert told.text == WORDS

    with_front({"a": "m:step_s=0.2"}, test)


def test_without_a_key_or_for_another_model_nothing_is_asked() -> None:
    async def test(front: Front) -> None:
        assert (await front.ask(CHAT, key="wrong")).status == 401
        assert (await front.ask({**CHAT, "model": "m"})).status == 404
        assert (await front.ask({"messages": []})).status == 400
        engine = front.instances["a"].engine
        assert engine is not None
        assert not engine.asked

    with_front({"a": "m"}, test)


def test_lengths_of_answers_and_of_tokens_are_learnt_from_what_passes() -> None:
    async def test(front: Front) -> None:
        for _ in range(10):
            await front.ask({"prompt": "x" * 400, "max_tokens": 20, "stream": True})
        lengths = front.desk.lengths
        assert lengths.predict("llama", OWNER, max_tokens=None) == 20
        assert lengths.predict("llama", OWNER, max_tokens=5) == 5

    with_front({"a": "m"}, test)


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


def test_what_an_instance_says_of_its_room_reaches_the_router() -> None:
    clock = Clock()
    instances = {
        name: There(door=Door(url="http://x", model="m"), load=load)
        for name, load in (
            ("full", EngineLoad(kv_usage=1.0, kv_room_tokens=4096)),
            ("empty", EngineLoad(kv_usage=0.0, kv_room_tokens=4096)),
        )
    }
    speeds = {name: InstanceSpeed(kv_room_tokens=10**6, latency=None) for name in instances}
    router = make_instance_router("load_aware", speeds=speeds, weights={})
    balance = Balance(instances, router=router, clock=clock)
    balance.observe()
    size = RequestSize(prompt_tokens=10, predicted_output_tokens=10)
    assert [balance.choose(number, size, without=()) for number in range(5)] == ["empty"] * 5


def test_what_still_runs_at_an_instance_that_failed_keeps_nobody_from_trying_it() -> None:
    clock = Clock()
    instances = {"a": There(door=Door(url="http://x", model="m"))}
    router = make_instance_router(
        "single", speeds={"a": InstanceSpeed(kv_room_tokens=1, latency=None)}, weights={}
    )
    balance = Balance(instances, router=router, clock=clock)
    size = RequestSize(prompt_tokens=1, predicted_output_tokens=1)
    assert balance.choose(1, size, without=()) == "a"  # a long answer
    assert balance.choose(2, size, without=()) == "a"
    balance.failed("a", "broken")
    balance.end(2)
    assert balance.choose(3, size, without=()) is None
    clock.now_s += FIRST_REST_S
    assert balance.choose(4, size, without=()) == "a"
    assert balance.choose(5, size, without=()) is None  # one tries it
    balance.end(4)  # its client hung up
    assert balance.choose(6, size, without=()) == "a"
    balance.began("a")
    assert balance.choose(7, size, without=()) == "a"


def test_failures_of_requests_sent_together_count_once_and_rests_have_an_end() -> None:
    clock = Clock()
    instances = {"a": There(door=Door(url="http://x", model="m"))}
    router = make_instance_router(
        "single", speeds={"a": InstanceSpeed(kv_room_tokens=1, latency=None)}, weights={}
    )
    balance = Balance(instances, router=router, clock=clock)
    for _ in range(5):
        balance.failed("a", "broken")
    trouble = balance.trouble_of("a")
    assert trouble is not None
    assert trouble.until_s == clock.now_s + FIRST_REST_S
    for _ in range(50):
        clock.now_s += 1000
        balance.failed("a", "broken")
    trouble = balance.trouble_of("a")
    assert trouble is not None
    assert trouble.until_s == clock.now_s + LONGEST_REST_S


STREAM = b': hi\r\n\r\ndata: {"choices": [{"text": "\xc3\xa9"}]}\n\nevent: x\ndata: {"a":\ndata: 1}\n\ndata: [DONE]\n\n'  # noqa: E501
EVENTS = [
    Event(body=None, is_comment=True),
    Event(body={"choices": [{"text": "é"}]}),
    Event(body={"a": 1}),
    Event(body=None),
]


@pytest.mark.parametrize("seed", range(20))
def test_events_are_the_same_in_whatever_pieces_they_come(seed: int) -> None:
    chance, reader, seen, rest = random.Random(seed), EventReader(), [], STREAM
    while rest:
        size = chance.randint(1, 30)
        seen += list(reader.feed(rest[:size]))
        rest = rest[size:]
    assert seen == EVENTS
    assert reader.is_between_events


@pytest.mark.parametrize(
    "piece", [b"<html>\n\n", b"data: {\n\n", b"data: 7\n\n", b"data: \xff\n\n", b"x" * (5 << 20)]
)
def test_what_is_no_event_is_garbage(piece: bytes) -> None:
    with pytest.raises(Garbage):
        list(EventReader().feed(piece))


@pytest.mark.parametrize(
    ("prompt", "chars", "tokens"),
    [
        ("four", 4, None),
        (["four"], 4, None),
        ([1, 2, 3], 0, 3),
        ([[1, 2, 3]], 0, 3),
        ([True], 0, None),
        ([[1], [2]], 0, None),
    ],
)
def test_the_size_of_a_prompt_is_counted_or_guessed(
    prompt: object, chars: int, tokens: int | None
) -> None:
    asked = asked_of({"model": "m", "prompt": prompt})
    assert (asked.prompt_chars, asked.prompt_tokens) == (chars, tokens)


def test_characters_of_a_token_are_learnt_within_reason() -> None:
    lengths, asked = TokenLengths(), asked_of({"model": "m", "prompt": "x" * 1000})
    assert lengths.prompt_tokens(asked) == 250
    for _ in range(200):
        lengths.observe(asked, 500)
    assert lengths.prompt_tokens(asked) == pytest.approx(500, rel=0.02)
    for _ in range(200):
        lengths.observe(asked, 1)
    assert lengths.prompt_tokens(asked) == pytest.approx(125, rel=0.02)


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"7", b"\xff", b'{"model": 1}', b"[" * 9999])
def test_what_cannot_be_routed_is_refused(content: bytes) -> None:
    with pytest.raises(ApiError):
        read_asked("/v1/completions", content, model_name="m")


def asked_of(body: dict[str, Any]) -> Asked:
    return read_asked("/v1/completions", json.dumps(body).encode(), model_name="m")
