"""When a stage waits and when it does not: never while there is work, never busily without."""

from collections.abc import Callable

import pytest
from emulated_cluster import LAYERS, emulation_of

from runtime.engine.backend import Opened
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import REPORT_INTERVAL_S, Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Route, Sampling
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import Received


class Diary:
    """A transport and a clock: waiting is what time passes by; everything is written down."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events: list[tuple[str, float]] = []
        self.inbox: list[Received] = []

    def clock(self) -> float:
        return self.now_s

    def send(self, peer: str, message: Message) -> None:
        if message.kind != Kind.STATUS:
            self.events.append((f"send {message.kind.name} to {peer}", self.now_s))

    def receive(self, *, timeout_s: float) -> list[Received]:
        self.events.append(("receive", timeout_s))
        received, self.inbox = self.inbox, []
        if not received:
            self.now_s += timeout_s
        return received

    def on_sleep(self) -> None:
        """Tests put in what they look at while a step computes."""

    def sleep(self, seconds: float) -> None:
        self.on_sleep()
        self.events.append(("compute", seconds))
        self.now_s += seconds

    def close(self) -> None:
        """Nothing is held."""


def make_stage(diary: Diary, *, on_step: Callable[[int], None] = lambda _: None) -> Stage:
    return Stage(
        "a",
        Opened(
            backend=EmulatedRunner(
                emulation_of(),
                first=0,
                end=LAYERS // 2,
                page_tokens=4,
                clock=diary.clock,
                sleep=diary.sleep,
            ),
            limits=EngineLimits(page_tokens=4, max_batch_tokens=8, max_context_tokens=64),
        ),
        diary,
        EngineOptions(),
        generation=1,
        process=StageProcess(clock=diary.clock, sleep=diary.sleep, on_step=on_step),
    )


def prompt(n_tokens: int, *, request: int = 1) -> Received:
    hops = (Hop(node="a", first=0, end=LAYERS // 2), Hop(node="b", first=LAYERS // 2, end=LAYERS))
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=4)
    entry = Entry(
        request=request,
        epoch=0,
        position=0,
        n_tokens=n_tokens,
        hop=0,
        flags=Flag.PROMPT_END,
        route=Route(hops=hops, sampling=sampling, prompt_tokens=n_tokens),
    )
    message = Message(
        kind=Kind.PROMPT,
        generation=1,
        entries=(entry,),
        dtype=DType.INT32,
        payload=bytes(4 * n_tokens),
    )
    return Received(sender="coordinator", message=message)


def release(request: int) -> Received:
    entry = Entry(request=request, epoch=0, position=0, n_tokens=0, hop=0)
    message = Message(kind=Kind.RELEASE, generation=1, entries=(entry,))
    return Received(sender="coordinator", message=message)


def test_a_stage_with_nothing_to_do_blocks_on_its_transport() -> None:
    diary = Diary()
    make_stage(diary).run(lambda: diary.now_s >= 10 * REPORT_INTERVAL_S)
    waits = [seconds for event, seconds in diary.events if event == "receive"]
    assert sum(waits) >= 10 * REPORT_INTERVAL_S
    assert len(waits) < 100
    assert sum(seconds == 0 for seconds in waits) <= 10


def test_what_a_step_made_is_sent_before_the_next_one_and_nothing_waits_for_it() -> None:
    diary = Diary()
    diary.inbox.append(prompt(20))
    make_stage(diary).run(lambda: len(diary.events) > 18)
    chunks = [event for event, _ in diary.events if event in ("compute", "send ROWS to b")][:6]
    assert chunks == ["compute", "send ROWS to b"] * 3
    ended = [at for at, (event, _) in enumerate(diary.events) if event == "send ROWS to b"][2]
    waits = [
        (at, seconds) for at, (event, seconds) in enumerate(diary.events) if event == "receive"
    ]
    assert all(seconds == 0.0 for at, seconds in waits[1:] if at < ended)  # rows wait to be run
    assert next(seconds for at, seconds in waits if at > ended) > 0.0  # and now none do


@pytest.mark.parametrize(
    ("coming", "during", "after"), [("another prompt", 2, 2), ("its release", 1, 0)]
)
def test_rows_are_taken_in_while_a_step_computes_and_ends_of_requests_after_it(
    coming: str, during: int, after: int
) -> None:
    diary = Diary()
    diary.inbox.append(prompt(8))
    to_come = [release(1) if coming == "its release" else prompt(8, request=2)]

    def on_step(rows: int) -> None:
        diary.events.append(("step", rows))
        diary.inbox += to_come
        to_come.clear()

    stage = make_stage(diary, on_step=on_step)
    diary.on_sleep = lambda: diary.events.append(("requests", stage.stats().sequences))  # type: ignore[method-assign]
    stage.run(lambda: len(diary.events) > 20)
    events = [event for event in diary.events if event[0] in ("receive", "step", "requests")]
    begins = events.index(("step", 8))
    # its rows are said again: who watches how long it lasts takes a receive for its end
    expected = [("step", 8), ("receive", 0.0), ("step", 8), ("requests", during)]
    assert events[begins : begins + 4] == expected
    assert stage.stats().sequences == after
    stage.check_pages()
