"""When a first stage waits for more decodes, and that it never does for long."""

import math
from itertools import pairwise

import pytest
from emulated_cluster import LAYERS, emulation_of
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.backend import Opened
from runtime.engine.core_use import CoreUse
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.sequence import Chunk, RequestKey, Sequence
from runtime.engine.shared_cores import SharedCores
from runtime.engine.stage import Stage
from runtime.engine.stage_process import StageProcess
from runtime.engine.step_pace import gathering_s
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Route, Sampling
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import Received

HOPS = (Hop(node="a", first=0, end=LAYERS // 2), Hop(node="b", first=LAYERS // 2, end=LAYERS))
PROMPT_TOKENS = 4
AWAY_S = 0.25
NOW_S = 100.0


def sequence(number: int, *, hop: int = 0, done: int = PROMPT_TOKENS) -> Sequence:
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=40)
    route = Route(hops=HOPS, sampling=sampling, prompt_tokens=PROMPT_TOKENS)
    made = Sequence(
        key=RequestKey(request=number, epoch=0), generation=1, route=route, hop=hop, arrival=number
    )
    made.received = made.done = done
    return made


def away(number: int, *, for_s: float = 0.0) -> Sequence:
    made = sequence(number)
    made.left_s = NOW_S - for_s
    return made


def here(number: int, *, for_s: float = 0.0, hop: int = 0, is_prompt: bool = False) -> Sequence:
    made = sequence(number, hop=hop, done=0 if is_prompt else PROMPT_TOKENS)
    made.left_s, made.heard_s = NOW_S - AWAY_S, NOW_S - for_s
    chunk = Chunk(
        position=made.done,
        n_tokens=PROMPT_TOKENS if is_prompt else 1,
        payload=memoryview(b""),
        is_sampled=True,
        arrival=number,
    )
    made.append(chunk)
    return made


def wait_s(*sequences: Sequence, at_once: float = 1.0, most: int = 512) -> float:
    return gathering_s(
        sequences, steps_at_once=at_once, most_decodes=most, away_s=AWAY_S, now_s=NOW_S
    )


def test_a_step_waits_for_decodes_that_are_away_where_one_can_run_at_once() -> None:
    assert wait_s(here(1), away(2), away(3)) == pytest.approx(AWAY_S)
    assert wait_s(here(1, for_s=0.1), here(2), away(3)) == pytest.approx(AWAY_S - 0.1)
    assert wait_s(here(1), here(2), here(3)) == 0.0


def test_it_waits_for_its_share_where_several_can_run_at_once() -> None:
    assert wait_s(here(1), away(2), away(3), away(4), at_once=2.0) > 0
    assert wait_s(here(1), here(2), away(3), away(4), at_once=2.0) == 0.0
    assert wait_s(here(1), away(2), away(3), at_once=6.0) == 0.0


def test_it_does_not_wait_for_more_than_a_step_holds() -> None:
    assert wait_s(here(1), here(2), away(3), most=2) == 0.0


def test_prompts_and_rows_from_other_stages_wait_for_nothing() -> None:
    assert wait_s(here(1, is_prompt=True), here(2), away(3)) == 0.0
    assert wait_s(here(1, hop=1), here(2), away(3)) == 0.0


def test_it_waits_for_nobody_who_has_finished_or_is_overdue() -> None:
    finished = away(2)
    finished.is_finished = True
    assert wait_s(here(1), finished) == 0.0
    assert wait_s(here(1), away(2, for_s=2 * AWAY_S)) == 0.0
    assert wait_s(here(1), away(2, for_s=1.75 * AWAY_S)) == pytest.approx(AWAY_S / 4)
    later_stage = sequence(2, hop=1)
    later_stage.left_s = NOW_S
    assert wait_s(here(1), later_stage) == 0.0


ANY = st.one_of(
    st.builds(away, st.integers(0, 999), for_s=st.floats(0, 3)),
    st.builds(
        here,
        st.integers(0, 999),
        for_s=st.floats(0, 3),
        hop=st.sampled_from((0, 0, 0, 1)),
        is_prompt=st.sampled_from((False, False, False, True)),
    ),
)


@given(st.lists(ANY, max_size=12), st.floats(1, 6), st.integers(1, 600))
def test_nothing_waits_longer_than_requests_are_usually_away(
    sequences: list[Sequence], at_once: float, most: int
) -> None:
    seconds = wait_s(*sequences, at_once=at_once, most=most)
    waiting = [one for one in sequences if one.pending]
    for one in waiting:
        assert one.heard_s + AWAY_S >= NOW_S + seconds - 1e-9 or seconds == 0
    if seconds:
        assert waiting
        assert all(one.is_first_stage and not one.is_prefilling for one in waiting)
        absent = [one for one in sequences if not one.pending and one.is_awaited]
        assert len(waiting) < min(most, math.ceil(len(waiting + absent) / at_once))


class Loop:
    """A transport and a clock for a first stage whose later stages take `away_s` for whatever
    comes, and cores that one batch at a time fills (`is_short`) or that are plenty."""

    def __init__(self, *, is_short: bool, requests: int, away_s: float, lost: int = 0) -> None:
        self.now_s = 0.0
        self.waited_s = 0.0
        self.receives = 0
        self.batches: list[tuple[float, int]] = []  # when a step ended, and its decodes
        self._is_short = is_short
        self._away_s = away_s
        self._lost = lost
        self._inbox: list[tuple[float, Received]] = [
            (0.005 * number, Received(sender="coordinator", message=prompt(number)))
            for number in range(requests)
        ]

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def read(self) -> CoreUse:
        share = 0.5 if self._is_short else 1.0
        return CoreUse(
            at_s=self.now_s,
            ran_s=self.now_s * share,
            delayed_s=self.now_s * (1 - share),
            idle_s=0.0 if self._is_short else self.now_s * 8,
        )

    def send(self, peer: str, message: Message) -> None:
        if message.kind != Kind.ROWS:
            return
        decodes = [entry for entry in message.entries if Flag.PREFILL not in entry.flags]
        if decodes:
            self.batches.append((self.now_s, len(decodes)))
        for entry in message.entries:
            if entry.request < self._lost and len(self.batches) > 10:
                continue
            position = entry.position + entry.n_tokens
            sampled = Entry(request=entry.request, epoch=0, position=position, n_tokens=1, hop=0)
            back = Message(
                kind=Kind.SAMPLED,
                generation=1,
                entries=(sampled,),
                dtype=DType.INT32,
                payload=bytes(4),
            )
            self._inbox.append((self.now_s + self._away_s, Received(sender="b", message=back)))

    def receive(self, *, timeout_s: float) -> list[Received]:
        self.receives += 1
        until_s = self.now_s + timeout_s
        if self._inbox:
            until_s = min(until_s, max(self.now_s, min(at_s for at_s, _ in self._inbox)))
        self.waited_s += until_s - self.now_s
        self.now_s = until_s
        come = [received for at_s, received in self._inbox if at_s <= self.now_s]
        self._inbox = [(at_s, received) for at_s, received in self._inbox if at_s > self.now_s]
        return come

    def close(self) -> None:
        """Nothing is held."""


def prompt(number: int) -> Message:
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=4000)
    route = Route(hops=HOPS, sampling=sampling, prompt_tokens=PROMPT_TOKENS)
    entry = Entry(
        request=number,
        epoch=0,
        position=0,
        n_tokens=PROMPT_TOKENS,
        hop=0,
        flags=Flag.PROMPT_END,
        route=route,
    )
    return Message(
        kind=Kind.PROMPT,
        generation=1,
        entries=(entry,),
        dtype=DType.INT32,
        payload=bytes(4 * PROMPT_TOKENS),
    )


def run(loop: Loop, *, until_s: float, watches: bool = True) -> Stage:
    stage = Stage(
        "a",
        Opened(
            backend=EmulatedRunner(
                emulation_of(pages=100_000),
                first=0,
                end=LAYERS // 2,
                page_tokens=4,
                clock=loop.clock,
                sleep=loop.sleep,
            ),
            limits=EngineLimits(page_tokens=4, max_batch_tokens=64, max_context_tokens=4096),
        ),
        loop,
        EngineOptions(),
        generation=1,
        process=StageProcess(
            cores_shared_by=lambda _: (
                SharedCores(loop.read, threads=1, most=6.0) if watches else None
            ),
            clock=loop.clock,
            sleep=loop.sleep,
        ),
    )
    stage.run(lambda: loop.now_s >= until_s)
    return stage


def test_a_stage_short_of_cores_gathers_all_its_decodes_into_one_step() -> None:
    loop = Loop(is_short=True, requests=8, away_s=0.05)
    stage = run(loop, until_s=8.0)
    assert {decodes for _, decodes in loop.batches[-20:]} == {8}
    assert stage.stats().steps_at_once == 1.0
    assert stage.stats().micro_batches == 1.0


def test_a_stage_with_cores_enough_forms_its_steps_as_if_it_did_not_look() -> None:
    watching, blind = (Loop(is_short=False, requests=8, away_s=0.05) for _ in range(2))
    stage = run(watching, until_s=4.0)
    run(blind, until_s=4.0, watches=False)
    assert watching.batches == blind.batches
    assert stage.stats().steps_at_once is None


def test_requests_that_are_lost_elsewhere_hold_the_others_up_for_a_moment_only() -> None:
    loop = Loop(is_short=True, requests=8, away_s=0.05, lost=2)
    run(loop, until_s=8.0)
    assert {decodes for _, decodes in loop.batches[-20:]} == {6}
    ends = [at_s for at_s, _ in loop.batches]
    assert max(after - before for before, after in pairwise(ends)) < 5 * 0.05


def test_waiting_for_decodes_is_no_busy_waiting() -> None:
    loop = Loop(is_short=True, requests=8, away_s=0.05)
    run(loop, until_s=8.0)
    assert loop.waited_s > 0
    assert loop.receives < 12 * len(loop.batches) + 50
