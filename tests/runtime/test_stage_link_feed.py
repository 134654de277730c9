"""What a stage asks of its links and reports of them."""

from collections.abc import Callable

import numpy as np
import pytest
from emulated_cluster import LAYERS, emulation_of
from in_memory_network import InMemoryNetwork

from planner.domain.cluster import COORDINATOR
from planner.domain.layer_times import LayerTimes
from runtime.engine.backend import Opened
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.link_cuts import LinkCuts
from runtime.engine.prompt_steps import PromptSteps
from runtime.engine.sequence import Chunk, RequestKey, Sequence
from runtime.engine.stage import Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.control import LinkStats
from runtime.protocol.data import (
    DType,
    Entry,
    Flag,
    Hop,
    Kind,
    MeasureOrder,
    Message,
    Route,
    Sampling,
)
from runtime.protocol.engine_options import EngineOptions
from runtime.protocol.link_news import LinkNews
from runtime.transport.base import UnknownPeer
from runtime.transport.link_scheduler import RecentRate

TIMES = LayerTimes(prompt=((1, 0.001), (64, 0.01)), decode=((1, 0.005), (8, 0.005)))


def test_a_stage_reports_what_is_known_of_its_links() -> None:
    known = {"b": LinkStats(bandwidth_bytes_per_s=5e6, urgent_messages_total=3)}
    stage = Stage(
        "a",
        Opened(
            backend=EmulatedRunner(emulation_of(), first=0, end=LAYERS, page_tokens=4),
            limits=EngineLimits(page_tokens=4, max_batch_tokens=8, max_context_tokens=64),
        ),
        InMemoryNetwork().join("a"),
        EngineOptions(),
        generation=1,
        process=StageProcess(link_stats=lambda: known),
    )
    assert stage.stats().links == known


def rates(**bytes_per_s: float | None) -> dict[str, LinkStats]:
    return {peer: LinkStats(bandwidth_bytes_per_s=rate) for peer, rate in bytes_per_s.items()}


def test_rates_are_news_when_they_are_new_or_changed_by_more_than_a_twentieth() -> None:
    news = LinkNews()
    assert not news.take(rates(b=None), now_s=0.0)
    assert news.take(rates(b=100.0), now_s=1.0)
    assert not news.take(rates(b=104.0), now_s=2.0)
    assert news.take(rates(b=106.0), now_s=3.0)
    assert news.take(rates(b=106.0, c=1.0), now_s=3.0)
    news.told(rates(b=50.0, c=1.0))
    assert not news.take(rates(b=50.0, c=1.0), now_s=4.0)
    assert news.take(rates(b=47.0, c=1.0), now_s=4.0)


def test_rates_that_never_rest_are_told_as_rarely_as_all_else_in_the_long_run() -> None:
    news = LinkNews()
    turns = [
        turn * 0.5
        for turn in range(1200)
        if news.take(rates(b=100.0 + 50.0 * (turn % 2)), now_s=turn * 0.5)
    ]
    assert 10 <= sum(at_s < 10.0 for at_s in turns) <= 12
    assert len(turns) <= 10 + 600 / 10


def test_the_rate_of_late_follows_what_went_and_fades() -> None:
    rate = RecentRate()
    assert rate.bytes_per_s(5.0) == 0.0
    for number in range(200):
        rate.add(1000, now_s=number * 0.1)
    assert rate.bytes_per_s(20.0) == pytest.approx(10_000, rel=0.1)
    assert rate.bytes_per_s(50.0) < 10


def stage_that(
    network: InMemoryNetwork,
    *,
    measure: Callable[[MeasureOrder], bool] = lambda _: False,
    on_step: Callable[[int], None] = lambda _: None,
) -> Stage:
    return Stage(
        "a",
        Opened(
            backend=EmulatedRunner(emulation_of(), first=0, end=LAYERS, page_tokens=4),
            limits=EngineLimits(page_tokens=4, max_batch_tokens=8, max_context_tokens=64),
        ),
        network.join("a"),
        EngineOptions(),
        generation=1,
        process=StageProcess(on_step=on_step, measure=measure),
    )


def test_a_stage_says_how_much_a_step_has_to_do_before_it_runs() -> None:
    network = InMemoryNetwork()
    network.join(COORDINATOR)
    rows: list[int] = []
    stage = stage_that(network, on_step=rows.append)
    route = Route(
        hops=(Hop(node="a", first=0, end=LAYERS),),
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=2),
        prompt_tokens=21,
    )
    entry = Entry(
        request=1, epoch=1, position=0, n_tokens=21, hop=0, flags=Flag.PROMPT_END, route=route
    )
    prompt = Message(
        kind=Kind.PROMPT,
        generation=1,
        entries=(entry,),
        dtype=DType.INT32,
        payload=np.arange(21, dtype="<i4").tobytes(),
    )
    network.deliver(COORDINATOR, "a", prompt)
    turns = iter((False, False, False, True))
    stage.run(lambda: next(turns))
    # when it begins, and again once messages were taken in beside it
    assert rows[::2] == rows[1::2]
    assert rows[::2] == [16, 5, 1], "the prompt in steps of at most sixteen, then a decode"


def test_the_coordinators_orders_to_measure_are_passed_on_and_nobody_elses() -> None:
    network = InMemoryNetwork()
    orders: list[MeasureOrder] = []

    def measure(order: MeasureOrder) -> bool:
        orders.append(order)
        return True

    stage = stage_that(network, measure=measure)
    order = MeasureOrder(peer="b", most_bytes=1000, most_s=0.5)
    for sender in ("b", COORDINATOR):
        network.deliver(sender, "a", Message(kind=Kind.MEASURE, generation=1, measure=order))
    turns = iter((False, True))
    stage.run(lambda: next(turns))
    assert orders == [order]


def test_an_order_that_cannot_be_followed_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(order: MeasureOrder) -> bool:
        raise UnknownPeer(f"{order.peer!r} is not a peer")

    network = InMemoryNetwork()
    stage = stage_that(network, measure=refuse)
    order = MeasureOrder(peer="gone", most_bytes=1000, most_s=0.5)
    network.deliver(COORDINATOR, "a", Message(kind=Kind.MEASURE, generation=1, measure=order))
    turns = iter((False, True))
    stage.run(lambda: next(turns))
    assert "'gone' is not a peer" in caplog.text


def prompt_of(request: int, *, hops: int, n_tokens: int = 800) -> Sequence:
    route = Route(
        hops=tuple(Hop(node=f"n{index}", first=index, end=index + 1) for index in range(hops)),
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=8),
        prompt_tokens=n_tokens,
    )
    sequence = Sequence(
        key=RequestKey(request=request, epoch=1), generation=1, route=route, hop=0, arrival=request
    )
    sequence.append(
        Chunk(
            position=0,
            n_tokens=n_tokens,
            payload=memoryview(bytes(4 * n_tokens)),
            is_sampled=True,
            arrival=request,
        )
    )
    return sequence


def test_prompts_are_cut_by_the_measured_rate_of_the_link_they_take_next() -> None:
    links = {"n1": LinkStats(bandwidth_bytes_per_s=1e5)}  # a floor: nobody has seen it full
    now_s = [0.0]
    steps = PromptSteps(least=16, most=512)
    for size in (32, 64, 128, 256, 512):
        steps.observe(prompt_tokens=size, step_s=0.03 + size * 0.00014)
    cuts = LinkCuts(steps, row_bytes=13_312, link_stats=lambda: links, clock=lambda: now_s[0])
    assert cuts.first_rows([prompt_of(1, hops=3)]) is None
    links = {"n1": LinkStats(bandwidth_bytes_per_s=12.5e6, bandwidth_is_floor=False)}
    assert cuts.first_rows([prompt_of(1, hops=3)]) is None  # asked for a moment ago
    now_s[0] = 1.0
    assert cuts.first_rows([prompt_of(1, hops=3)]) in (64, 128)
    links = {"n1": LinkStats(bandwidth_bytes_per_s=5e6)}  # was not asked for more since
    now_s[0] = 2.0
    assert cuts.first_rows([prompt_of(1, hops=3)]) in (64, 128)
    assert cuts.first_rows([prompt_of(1, hops=1)]) is None  # leaves over no link
    assert cuts.first_rows([prompt_of(2, hops=1), prompt_of(1, hops=3)]) is not None  # the oldest
    assert cuts.first_rows([]) is None
