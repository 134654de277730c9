"""When a stage waits and when it does not: never while there is work, never busily without."""

from emulated_cluster import LAYERS, emulation_of

from runtime.engine.backend import Opened
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import REPORT_INTERVAL_S, Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.data import DType, Entry, Flag, Kind, Message
from runtime.protocol.engine_options import EngineOptions
from runtime.protocol.routes import Hop, Route, Sampling
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

    def sleep(self, seconds: float) -> None:
        self.events.append(("compute", seconds))
        self.now_s += seconds

    def close(self) -> None:
        """Nothing is held."""


def make_stage(diary: Diary) -> Stage:
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
        process=StageProcess(clock=diary.clock, sleep=diary.sleep),
    )


def prompt(n_tokens: int) -> Received:
    hops = (Hop(node="a", first=0, end=LAYERS // 2), Hop(node="b", first=LAYERS // 2, end=LAYERS))
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=4)
    entry = Entry(
        request=1,
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
    make_stage(diary).run(lambda: len(diary.events) > 10)
    chunks = [event for event, _ in diary.events if event != "receive"][:6]
    assert chunks == ["compute", "send ROWS to b"] * 3
    waits = [seconds for event, seconds in diary.events if event == "receive"]
    assert waits[1:3] == [0.0, 0.0]  # rows still wait to be run
    assert waits[3] > 0.0  # and now none do
