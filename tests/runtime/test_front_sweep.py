"""An instance is timed over its API: what comes out is what its engine does, in virtual time."""

import asyncio
import heapq
import itertools
import json
import random
from collections.abc import AsyncIterator

import httpx
import pytest

from planner.latency_fit import fit_latency_model
from planner.latency_model import Fit, LatencyModel
from runtime.front.measuring import document, main, sweep_instance
from runtime.front.target import InstanceFailed, InstanceTarget, Refused
from runtime.instances.engine_load import EngineLoad
from runtime.protocol.instance_orders import InstanceAddress

ADDRESS = InstanceAddress(url="http://engine", model="m")
CHARS_PER_TOKEN = 3


def fit(*parameters: float) -> Fit:
    both, per_request, per_token, base = parameters
    return Fit(
        parameters=(both, per_request, per_token, base),
    )


MODEL = LatencyModel(prefill=fit(2e-4, 3e-3, 1e-4, 0.02), decode=fit(1e-6, 1e-3, 2e-6, 0.01))


class VirtualTime:
    """Passes when everybody waits for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._waiting: list[tuple[float, int, asyncio.Event]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        return self.now_s

    async def until(self, at_s: float) -> None:
        reached = asyncio.Event()
        heapq.heappush(self._waiting, (at_s, next(self._numbers), reached))
        await reached.wait()

    async def run(self) -> None:
        while True:
            for _ in range(100):  # whoever can still go on
                await asyncio.sleep(0)
            if self._waiting:
                self.now_s, _, reached = heapq.heappop(self._waiting)
                reached.set()


class Engine(httpx.AsyncBaseTransport):
    """Takes the times of `MODEL` for whatever is asked at once; a token per character triple."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._batch = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        tokens = len(asked["prompt"]) // CHARS_PER_TOKEN
        if tokens > 4000:
            return httpx.Response(400, json={"error": {"message": "too long"}})
        usage = {"prompt_tokens": tokens, "completion_tokens": asked["max_tokens"]}
        if not asked["stream"]:
            body = {"choices": [{"text": "x", "finish_reason": "length"}], "usage": usage}
            return httpx.Response(200, json=body)
        self._batch += 1
        return httpx.Response(
            200,
            headers={"content-type": "text/event-stream"},
            content=self._events(tokens, asked["max_tokens"], usage, self._time.now_s),
        )

    async def _events(
        self, tokens: int, count: int, usage: dict[str, int], at_s: float
    ) -> AsyncIterator[bytes]:
        for number in range(count):
            await self._time.until(at_s)  # the others of the batch are there, too
            batch = self._batch
            if number == 0:
                at_s += MODEL.prefill_s(batch=batch, input_tokens=tokens)
            else:
                context = tokens + count // 2
                at_s += MODEL.decode_step_s(batch=batch, context_tokens=context)
            await self._time.until(at_s)
            finish = "length" if number == count - 1 else None
            yield _event({"choices": [{"text": "x", "finish_reason": finish}]})
        yield _event({"choices": [], "usage": usage})
        self._batch -= 1
        yield b"data: [DONE]\n\n"


def _event(body: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def test_the_fit_of_a_sweep_is_the_engine_that_was_swept() -> None:
    async def test() -> None:
        time = VirtualTime()
        passing = asyncio.create_task(time.run())
        async with httpx.AsyncClient(transport=Engine(time)) as http:
            sweep = await sweep_instance(
                InstanceTarget(http, ADDRESS),
                batches=(1, 2, 4, 8),
                lengths=(50, 200, 800),
                output_tokens=12,
                repeats=1,
                clock=time,
                rng=random.Random(1),
            )
        passing.cancel()
        assert {one.batch for one in sweep.prefills} == {1, 2, 4, 8}
        assert len(sweep.decodes) == 12
        counted = [one.tokens for one in sweep.prefills[::4]]
        assert counted == pytest.approx([50, 200, 800], rel=0.05)
        found = fit_latency_model(sweep.prefills, sweep.decodes)
        assert found.prefill.parameters == pytest.approx(MODEL.prefill.parameters, rel=0.02)
        for batch, context in ((3, 100), (6, 700)):
            expected = MODEL.decode_step_s(batch=batch, context_tokens=context)
            said = found.decode_step_s(batch=batch, context_tokens=context)
            assert said == pytest.approx(expected, rel=0.02)
        told = document(sweep, EngineLoad(kv_room_tokens=4096))
        assert told["kv_room_tokens"] == 4096
        assert told["times"]["prefill"] == found.prefill.parameters
        assert told["fit"]["decode"]["median_error"] < 0.01

    asyncio.run(test())


@pytest.mark.parametrize(("length", "error"), [(9000, Refused), (200, InstanceFailed)])
def test_an_instance_that_cannot_be_measured_says_why(length: int, error: type[Exception]) -> None:
    class Mute(Engine):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if json.loads(request.content)["stream"]:
                return httpx.Response(500, json={"error": "out of memory"})
            return await super().handle_async_request(request)

    async def test() -> None:
        async with httpx.AsyncClient(transport=Mute(VirtualTime())) as http:
            with pytest.raises(error):
                await sweep_instance(
                    InstanceTarget(http, ADDRESS),
                    batches=(1,),
                    lengths=(length,),
                    output_tokens=4,
                    repeats=1,
                    clock=lambda: 0.0,
                    rng=random.Random(1),
                )

    asyncio.run(test())


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--batches", "0", "'0' is not a whole number above 0"),
        ("--lengths", "-5", "'-5' is not a whole number above 0"),
        ("--repeats", "x", "'x' is not a whole number above 0"),
        ("--output-tokens", "0", "'0' is not a whole number above 0"),
        ("--url", "http://[::1", "'http://[::1' is no address; write http(s)://HOST"),
    ],
)
def test_what_cannot_be_measured_with_is_refused_naming_it(
    capsys: pytest.CaptureFixture[str], option: str, value: str, told: str
) -> None:
    with pytest.raises(SystemExit):
        main(["--url", "http://127.0.0.1:9", "--model", "m", option, value])
    assert told in capsys.readouterr().err
