"""The coordinator of an emulated cluster: what it sends comes as late as its links say."""

import heapq
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_cluster import MODEL

from runtime.coordinator.emulated_sending import EmulatedSending
from runtime.coordinator.main import main
from runtime.protocol.data import DType, Entry, Flag, Kind, Message
from runtime.protocol.emulation import EmulatedNetwork, EmulationRefused, read_network
from runtime.transport.base import SendError


class Timers:
    """Time and the timers of an event loop; time passes in `run`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def clock(self) -> float:
        return self.now_s

    def call_at(self, moment_s: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._waiting, (moment_s, self._count, act))

    def run(self, *, until_s: float) -> None:
        while self._waiting and self._waiting[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._waiting)
            act()
        self.now_s = until_s


class Stages:
    """Notes when what came to whom; a lost one cannot be reached."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.came: list[tuple[float, str, Kind]] = []

    def send(self, peer: str, message: Message) -> None:
        if peer == "lost":
            raise SendError("no way to lost")
        self.came.append((round(self._clock(), 6), peer, message.kind))


def prompt(n_tokens: int) -> Message:
    entry = Entry(request=1, epoch=0, position=0, n_tokens=n_tokens, hop=0, flags=Flag.PROMPT_END)
    return Message(
        kind=Kind.PROMPT,
        generation=1,
        entries=(entry,),
        dtype=DType.INT32,
        payload=bytes(4 * n_tokens),
    )


RELEASE = Message(
    kind=Kind.RELEASE,
    generation=1,
    entries=(Entry(request=1, epoch=0, position=0, n_tokens=0, hop=0),),
)


def network() -> EmulatedNetwork:
    """4 bytes a token (MODEL): 100 tokens take 0.4 s to `a`."""
    return EmulatedNetwork.model_validate(
        {"model": MODEL, "links": {"a": {"bandwidth_bytes_per_s": 1000, "latency_s": 0.05}}}
    )


def test_what_is_sent_takes_what_its_link_takes_and_others_do_not_wait_for_it() -> None:
    timers = Timers()
    stages = Stages(timers.clock)
    sending = EmulatedSending(stages, network(), clock=timers.clock, call_at=timers.call_at)
    sending.send("a", prompt(100))
    sending.send("b", prompt(100))  # no link is told of: at once
    timers.run(until_s=0.44)
    assert stages.came == [(0.0, "b", Kind.PROMPT)]
    sending.send("a", prompt(50))
    timers.run(until_s=2.0)
    assert stages.came[1:] == [(0.45, "a", Kind.PROMPT), (0.69, "a", Kind.PROMPT)]


def test_a_release_overtakes_prompts_that_wait() -> None:
    timers = Timers()
    stages = Stages(timers.clock)
    sending = EmulatedSending(stages, network(), clock=timers.clock, call_at=timers.call_at)
    for _ in range(3):
        sending.send("a", prompt(100))
    sending.send("a", RELEASE)
    timers.run(until_s=5.0)
    assert [kind for _, _, kind in stages.came] == [
        Kind.PROMPT,
        Kind.RELEASE,
        Kind.PROMPT,
        Kind.PROMPT,
    ]


def test_a_stage_that_cannot_be_reached_is_logged_and_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timers = Timers()
    stages = Stages(timers.clock)
    sending = EmulatedSending(stages, network(), clock=timers.clock, call_at=timers.call_at)
    with caplog.at_level(logging.ERROR):
        sending.send("lost", RELEASE)
        sending.send("a", RELEASE)
        timers.run(until_s=1.0)
    assert "cannot send to lost: no way to lost" in caplog.text
    assert [peer for _, peer, _ in stages.came] == ["a"]


def test_a_file_that_describes_no_network_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "links.json"
    path.write_text('{"links": {}}')
    with pytest.raises(EmulationRefused, match=r"links\.json: model: Field required"):
        read_network(path)
    arguments = ["--server", "http://127.0.0.1:9", "--port", "0", "--emulate", str(path)]
    assert main([*arguments, "--data-dir", str(tmp_path / "data")]) == 2
    assert "links.json: model: Field required" in capsys.readouterr().err
