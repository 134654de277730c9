"""The coordinator inside its namespace: real dispatcher and sockets, requests from a schedule.

    python -m benchmarks.slow_links.serving_front

The only line on stdin is a `FrontOrder`; writes what became of each request, then ends.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import time
from typing import Any

from pydantic import BaseModel

from benchmarks.emulated.virtual_cluster import byte_tokenizer
from benchmarks.slow_links.serving_stage import GENERATION, PAGE_TOKENS
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import Placement
from planner.domain.problem import Workload
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.refusals import NotServing
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Routing, Serving
from runtime.coordinator.tracing import PATIENCE_S, Tracer
from runtime.protocol.control import PeerAddress, ServingPlan
from runtime.protocol.data import Sampling
from runtime.protocol.request_trace import PartPhase, RequestTrace
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import AsyncZmqTransport

_TIMEOUT_S = 600.0
_READY_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.1
_TRACES_PER_S = 100.0  # all of them


class Arrival(BaseModel):
    at_s: float
    prompt_tokens: int
    output_tokens: int


class FrontOrder(BaseModel):
    """A chain of the stages in `placement`'s order of layers; requests by arrival."""

    bind: str
    secret_key: str
    peers: tuple[PeerAddress, ...]
    placement: Placement
    num_layers: int
    max_context_tokens: int
    arrivals: tuple[Arrival, ...]
    drain_s: float


def weights_of(placement: Placement) -> dict[str, dict[str, float]]:
    """One chain."""
    names = sorted(placement.layers, key=lambda name: placement.layers[name].first)
    return {
        source: {target: 1.0} for source, target in itertools.pairwise(("source", *names, "sink"))
    }


def serving_of(order: FrontOrder) -> Serving:
    plan = ServingPlan(
        deployment_id=1,
        generation=GENERATION,
        model_name="emulated",
        checkpoint="none: the stages are emulated",
        num_layers=order.num_layers,
        partial_inference=False,
        placement=order.placement,
        routing_weights=weights_of(order.placement),
        workload=Workload(mean_prompt_tokens=500, mean_output_tokens=100),
        max_context_tokens=order.max_context_tokens,
        page_tokens=PAGE_TOKENS,
        max_queued_requests=10_000,
        emulated=True,
        peers=order.peers,
    )
    routing = Routing(name="iwrr", rng=random.Random(1), clock=time.monotonic)
    return Serving(plan=plan, tokenizer=byte_tokenizer(), routing=routing)


async def run(order: FrontOrder) -> list[dict[str, Any]]:
    transport = AsyncZmqTransport(
        name=COORDINATOR,
        bind=order.bind,
        keys=KeyPair.from_secret(order.secret_key),
        peers=order.peers,
    )
    numbers = itertools.count(1)
    tracer = Tracer(traces_per_s=_TRACES_PER_S, clock=time.monotonic, unix_time=time.time)
    dispatcher = Dispatcher(
        transport=transport,
        stats=RequestStats(window_s=10.0, clock=time.monotonic),
        clock=time.monotonic,
        new_request_id=lambda: next(numbers),
        request_timeout_s=_TIMEOUT_S,
        tracer=tracer,
    )
    serving = serving_of(order)
    dispatcher.serve(serving)

    async def receive() -> None:
        while True:
            for received in await transport.receive():
                dispatcher.receive(received)

    async def see() -> None:
        while True:
            for peer_event in await transport.peer_events():
                dispatcher.see(peer_event)

    working = asyncio.gather(receive(), see())
    try:
        await _until_ready(dispatcher)
        requests = await _offer(dispatcher, serving, order.arrivals)
        await _until_ended(requests, within_s=order.drain_s)
        traces = await _traces(tracer, dispatcher)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        transport.close()
    return [
        _told(one, arrival, traces.get(f"{one.id:016x}"))
        for one, arrival in zip(requests, order.arrivals, strict=True)
    ]


async def _until_ready(dispatcher: Dispatcher) -> None:
    """Raises NotServing naming the stages that did not report in time."""
    for _ in range(round(_READY_WITHIN_S / _LOOK_EVERY_S)):
        with contextlib.suppress(NotServing):
            dispatcher.plans.ready()
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    dispatcher.plans.ready()


async def _until_ended(requests: list[LiveRequest], *, within_s: float) -> None:
    for _ in range(round(within_s / _LOOK_EVERY_S)):
        if all(request.ended for request in requests):
            return
        await asyncio.sleep(_LOOK_EVERY_S)


async def _traces(tracer: Tracer, dispatcher: Dispatcher) -> dict[str, RequestTrace]:
    """By request; after the stages had time to answer."""
    await asyncio.sleep(PATIENCE_S + 1.0)
    dispatcher.expire()
    traces: dict[str, RequestTrace] = {}
    while waiting := tracer.waiting():
        traces |= {trace.request: trace for trace in waiting}
        tracer.delivered(waiting)
    return traces


async def _offer(
    dispatcher: Dispatcher, serving: Serving, arrivals: tuple[Arrival, ...]
) -> list[LiveRequest]:
    """Raises QueueFull where the schedule asks for more than may wait."""
    began_s = time.monotonic()
    chance = random.Random(2)
    requests = []
    for number, arrival in enumerate(arrivals):
        await asyncio.sleep(max(0.0, began_s + arrival.at_s - time.monotonic()))
        sampling = Sampling(
            temperature=1.0, top_p=1.0, top_k=0, seed=number, max_tokens=arrival.output_tokens
        )
        prompt_ids = chance.choices(range(256), k=arrival.prompt_tokens)
        requests.append(
            dispatcher.submit(serving, prompt_ids=prompt_ids, sampling=sampling, stop_strings=())
        )
    return requests


def _told(request: LiveRequest, arrival: Arrival, trace: RequestTrace | None) -> dict[str, Any]:
    """Times in seconds; None where they did not come. `parts` are where the TTFT went."""
    times = list(request.token_times)
    done = request.is_complete and len(times) == arrival.output_tokens
    parts: dict[str, float] = {}
    for part in () if trace is None else trace.parts:
        if part.phase is PartPhase.PROMPT:
            place = part.node if part.to is None else f"{part.node}->{part.to}"
            name = f"{part.kind} {place}"
            parts[name] = parts.get(name, 0.0) + part.seconds
    return {
        "at_s": arrival.at_s,
        "ttft_s": times[0] - request.arrived_at if times else None,
        "tpot_s": (times[-1] - times[0]) / (len(times) - 1) if done and len(times) > 1 else None,
        "e2e_s": times[-1] - request.arrived_at if done else None,
        "parts": parts,
    }


def main() -> None:
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    order = FrontOrder.model_validate_json(sys.stdin.readline())
    print(json.dumps(asyncio.run(run(order))), flush=True)


if __name__ == "__main__":
    main()
