"""Prompts that begin at a stage: cut, ordered and held by the link that their rows take next."""

from collections.abc import Callable

import numpy as np
import pytest
from emulated_cluster import LAYERS, emulation_of

from planner.domain.cluster import COORDINATOR
from planner.domain.layer_times import LayerTimes
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.link_cuts import Beginning, LinkCuts
from runtime.engine.prompt_steps import PromptSteps
from runtime.engine.sequence import Chunk, RequestKey, Sequence, Work
from runtime.engine.stage import Stage
from runtime.protocol.control import LinkStats
from runtime.protocol.data import DType, Entry, Flag, Kind, Message
from runtime.protocol.engine_options import EngineOptions
from runtime.protocol.routes import Hop, Route, Sampling
from runtime.transport.base import Received

ROW_BYTES = 13_312
TIMES = LayerTimes(prompt=((8, 0.001), (16, 0.002)), decode=((1, 0.001), (8, 0.001)))
RATE = 100.0 * ROW_BYTES  # a hundred rows in a second


def prompt_of(
    request: int, *, hops: int, n_tokens: int = 800, to: str = "n", came_s: float = 0.0
) -> Sequence:
    route = Route(
        hops=tuple(Hop(node=f"{to}{index}", first=index, end=index + 1) for index in range(hops)),
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=8),
        prompt_tokens=n_tokens,
    )
    sequence = Sequence(
        key=RequestKey(request=request, epoch=1), generation=1, route=route, hop=0, arrival=request
    )
    sequence.heard_s = came_s
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
    assert cuts.beginning([prompt_of(1, hops=3)]).most_rows is None
    links = {"n1": LinkStats(bandwidth_bytes_per_s=12.5e6, bandwidth_is_floor=False)}
    assert cuts.beginning([prompt_of(1, hops=3)]).most_rows is None  # asked for a moment ago
    now_s[0] = 1.0
    assert cuts.beginning([prompt_of(1, hops=3)]).most_rows in (64, 128)
    links = {"n1": LinkStats(bandwidth_bytes_per_s=5e6)}  # was not asked for more since
    now_s[0] = 2.0
    assert cuts.beginning([prompt_of(1, hops=3)]).most_rows in (64, 128)
    assert cuts.beginning([prompt_of(1, hops=1)]).most_rows is None  # leaves over no link
    assert cuts.beginning([]) == Beginning()


def cuts_of(links: Callable[[], dict[str, LinkStats]]) -> LinkCuts:
    steps = PromptSteps(least=16, most=512)
    return LinkCuts(steps, row_bytes=ROW_BYTES, link_stats=links, clock=lambda: 0.0)


def slow(*, waiting_s: float = 0.0) -> LinkStats:
    return LinkStats(
        bandwidth_bytes_per_s=RATE, bandwidth_is_floor=False, waiting_bytes=int(waiting_s * RATE)
    )


@pytest.mark.parametrize(("came_s", "first"), [(14.9, 2), (15.1, 1)])
def test_a_short_prompt_overtakes_a_long_one_that_came_not_much_before(
    came_s: float, first: int
) -> None:
    """The long one's rows take the link for 6 s, the short one's for 1 s: thrice that is 15 s."""
    cuts = cuts_of(lambda: {"n1": slow()})
    waiting = [
        prompt_of(1, hops=2, n_tokens=600),
        prompt_of(2, hops=2, n_tokens=100, came_s=came_s),
    ]
    ahead = cuts.beginning(waiting).ahead
    assert ahead is not None
    assert ahead.key.request == first


def test_over_links_that_nobody_has_seen_full_prompts_go_as_they_came() -> None:
    cuts = cuts_of(lambda: {"n1": LinkStats(bandwidth_bytes_per_s=RATE, waiting_bytes=10**9)})
    waiting = [prompt_of(2, hops=2, n_tokens=10, came_s=0.1), prompt_of(1, hops=2)]
    assert cuts.beginning(waiting) == Beginning(ahead=waiting[1])


def test_prompts_wait_here_while_enough_waits_on_their_link_and_others_do_not() -> None:
    links = {"n1": slow(waiting_s=0.45), "m1": slow(waiting_s=0.05)}
    cuts = cuts_of(lambda: links)
    held = [prompt_of(1, hops=2), prompt_of(2, hops=2)]
    beginning = cuts.beginning(held)
    assert (beginning.ahead, beginning.most_rows) == (None, 0)
    assert beginning.held_s == pytest.approx(0.2, rel=1e-3)
    goes = [prompt_of(3, hops=2, to="m"), prompt_of(4, hops=2, to="m")]
    alone = prompt_of(5, hops=1)
    assert cuts.beginning([*held, *goes]).ahead is goes[0]
    assert cuts.beginning([*held, alone]).ahead is alone
    assert cuts.beginning(held[:1]).ahead is held[0]  # nobody could overtake it
    work = Work(sequence=goes[0], chunk=goes[0].take(1))
    cuts.observe([work], step_s=0.3)  # with such steps more must wait there
    assert cuts.beginning(held).ahead is held[0]


def test_a_link_that_fell_gets_as_much_ahead_as_it_did_before() -> None:
    links = {"n1": slow()}
    now_s = [0.0]
    steps = PromptSteps(least=16, most=512)
    cuts = LinkCuts(steps, row_bytes=1, link_stats=lambda: links, clock=lambda: now_s[0])
    waiting = [prompt_of(1, hops=2), prompt_of(2, hops=2)]
    assert cuts.beginning(waiting).ahead is waiting[0]
    now_s[0] = 1.0
    links = {
        "n1": LinkStats(
            bandwidth_bytes_per_s=0.4 * RATE,
            bandwidth_is_floor=False,
            waiting_bytes=int(0.2 * RATE),
        )
    }
    assert cuts.beginning(waiting).ahead is waiting[0]
    now_s[0] = 2.0
    links["n1"] = links["n1"].model_copy(update={"waiting_bytes": int(0.35 * RATE)})
    assert cuts.beginning(waiting).held_s == pytest.approx(0.1 / 0.4, rel=1e-3)


class SlowLink:
    """A transport in virtual time: what is sent to "b" waits and goes, a hundred rows a second."""

    RATE = 200.0  # of emulated rows, bytes/s

    def __init__(self, prompts: list[Message]) -> None:
        self.now_s = 0.0
        self.turns = 0
        self.most_waiting_bytes = 0.0
        self.sent_rows = 0
        self._prompts = prompts
        self._waiting_bytes = 0.0

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self._waiting_bytes = max(0.0, self._waiting_bytes - seconds * self.RATE)

    def send(self, peer: str, message: Message) -> None:
        if peer == "b":
            self.sent_rows += sum(entry.n_tokens for entry in message.entries)
            self._waiting_bytes += memoryview(message.payload).nbytes
            self.most_waiting_bytes = max(self.most_waiting_bytes, self._waiting_bytes)

    def receive(self, *, timeout_s: float) -> list[Received]:
        self.turns += 1
        prompts, self._prompts = self._prompts, []
        self.pass_time(0.0 if prompts else max(timeout_s, 1e-4))
        return [Received(sender=COORDINATOR, message=prompt) for prompt in prompts]

    def links(self) -> dict[str, LinkStats]:
        return {
            "b": LinkStats(
                bandwidth_bytes_per_s=self.RATE,
                bandwidth_is_floor=False,
                waiting_bytes=int(self._waiting_bytes),
            )
        }

    def close(self) -> None:
        """Nothing is held."""


def test_a_stage_computes_no_more_than_its_link_takes_and_sleeps_meanwhile() -> None:
    route = Route(
        hops=(Hop(node="a", first=0, end=4), Hop(node="b", first=4, end=LAYERS)),
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=2),
        prompt_tokens=60,
    )
    prompts = [
        Message(
            kind=Kind.PROMPT,
            generation=1,
            entries=(
                Entry(
                    request=request, epoch=1, position=0, n_tokens=60, hop=0,
                    flags=Flag.PROMPT_END, route=route,
                ),
            ),
            dtype=DType.INT32,
            payload=np.arange(60, dtype="<i4").tobytes(),
        )
        for request in range(5)
    ]  # fmt: skip
    link = SlowLink(prompts)
    stage = Stage(
        name="a",
        generation=1,
        incarnation=1,
        limits=EngineLimits(page_tokens=4, max_batch_tokens=8, max_context_tokens=64),
        backend=EmulatedRunner(
            emulation_of(times=TIMES),
            first=0,
            end=4,
            page_tokens=4,
            clock=lambda: link.now_s,
            sleep=link.pass_time,
        ),
        transport=link,
        options=EngineOptions(),
        link_stats=link.links,
        clock=lambda: link.now_s,
        sleep=link.pass_time,
    )
    stage.run(lambda: link.sent_rows == 300 or link.turns > 2000)
    assert link.sent_rows == 300
    assert 1.9 <= link.now_s <= 2.4  # as long as the link takes but for what is ahead
    assert link.most_waiting_bytes <= (0.25 + 0.6 + 0.08) * link.RATE  # and the last one, a step
    assert link.turns < 200
