"""The urgent lane over connections that break, in virtual time: all arrives once and in order."""

import itertools
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.protocol.link_frames import Ack, Urgent, UrgentProbe, ack_of
from runtime.transport.receive_stream import ReceiveStreams
from runtime.transport.send_stream import Transmission
from runtime.transport.urgent_lane import UrgentLane
from tests.examples import examples

STREAM = 7
DONE_S = 200.0  # the longest pause between probes, several times


def urgent_lane(first_stream: int, *, most_kept: int = 10_000) -> UrgentLane:
    return UrgentLane(most_kept=most_kept, new_stream=itertools.count(first_stream).__next__)


@dataclass(slots=True)
class Connection:
    """What is under way on it, there and back."""

    there: deque[Transmission | UrgentProbe] = field(default_factory=deque)
    back: deque[Ack] = field(default_factory=deque)


@dataclass(slots=True)
class Lane:
    """Both ends, and connections of which the last is in use. One that was given up still delivers
    some of what was under way, however late, and answers nobody."""

    now_s: float = 0.0
    sender: UrgentLane = field(default_factory=lambda: urgent_lane(STREAM))
    streams: ReceiveStreams = field(default_factory=ReceiveStreams)
    connections: list[Connection] = field(default_factory=lambda: [Connection()])
    received: list[int] = field(default_factory=list)
    sent: int = 0
    went: int = 0  # messages, those that went again included
    asked: int = 0
    answers: int = 0

    def send(self) -> None:
        self.put(self.sender.number(b"%d" % self.sent, b"rows", now_s=self.now_s))
        self.sent += 1

    def put(self, what: Transmission | UrgentProbe) -> None:
        self.connections[-1].there.append(what)
        self.went += isinstance(what, Transmission)
        self.asked += isinstance(what, UrgentProbe)

    def give_up(self, *, delivers: int) -> None:
        """The connection, which will deliver so much more; another takes its place."""
        old = self.connections[-1]
        old.there = deque(list(old.there)[:delivers])
        self.connections.append(Connection())

    def deliver(self, connection: Connection) -> None:
        """The next thing that is under way there."""
        if not connection.there:
            return
        what = connection.there.popleft()
        header = what if isinstance(what, UrgentProbe) else what.header
        whole = None
        if isinstance(what, Transmission):
            whole = self.streams.accept(what.header, what.piece.head, what.piece.part)
        if whole is not None:
            self.received.append(int(bytes(whole[0])))
        if whole is None or (isinstance(header, Urgent) and header.asks):
            expected = self.streams.expected(header.stream)
            self.answers += 1
            connection.back.append(ack_of(header, expected=expected, delivered_bytes=0))

    def hear(self) -> None:
        """The next answer."""
        back = self.connections[-1].back
        if back:
            for numbered in self.sender.on_ack(back.popleft(), now_s=self.now_s):
                self.put(numbered)

    def run(self, *, for_s: float) -> None:
        """All that is under way in the last connection arrives and is answered, soon."""
        until_s = self.now_s + for_s
        while True:
            here = self.connections[-1]
            if here.there or here.back:
                self.now_s += 0.001
                self.deliver(here)
                self.hear()
            elif self.sender.probe_s <= until_s:
                self.now_s = max(self.now_s, self.sender.probe_s)
                self.ask()
            else:
                self.now_s = until_s
                return

    def ask(self) -> None:
        probe = self.sender.probe(now_s=self.now_s)
        if probe is not None:
            self.put(probe)


def test_what_a_given_up_connection_delivers_late_comes_neither_twice_nor_out_of_order() -> None:
    lane = Lane()
    for _ in range(4):
        lane.send()
    lane.deliver(lane.connections[0])
    lane.give_up(delivers=2)  # and loses the last
    lane.send()
    lane.deliver(lane.connections[1])  # the fifth, before the second
    assert lane.received == [0]
    lane.deliver(lane.connections[0])
    lane.run(for_s=1.0)
    lane.deliver(lane.connections[0])
    assert lane.received == [0, 1, 2, 3, 4]
    assert lane.sender.probe_s == float("inf")  # all were answered


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.one_of(
            st.just("send"),
            st.just("hear"),
            st.tuples(st.just("deliver"), st.integers(0, 5)),
            st.tuples(st.just("give up"), st.integers(0, 5)),
            st.tuples(st.just("wait"), st.floats(0.0, 3.0)),
        ),
        max_size=80,
    )
)
def test_whatever_breaks_every_message_arrives_once_and_in_order(
    steps: list[str | tuple[str, float]],
) -> None:
    lane = Lane()
    for step in steps:
        match step:
            case "send":
                lane.send()
            case "hear":
                lane.hear()
            case ("deliver", which):
                lane.deliver(lane.connections[-1 - int(which) % len(lane.connections)])
            case ("give up", late):
                lane.give_up(delivers=int(late))
            case ("wait", seconds):
                lane.now_s += float(seconds)
                lane.ask()
    lane.run(for_s=DONE_S)
    for connection in lane.connections:
        while connection.there:
            lane.deliver(connection)
    assert lane.received == list(range(lane.sent))
    assert lane.sender.probe_s == float("inf")


def test_a_receiver_that_was_started_anew_gets_what_was_not_answered_and_all_that_follows() -> None:
    lane = Lane()
    for _ in range(3):
        lane.send()
    lane.run(for_s=5.0)
    assert lane.sender.probe_s == float("inf")
    lane.streams = ReceiveStreams()
    lane.give_up(delivers=0)
    for _ in range(3):
        lane.send()
    lane.run(for_s=5.0)
    assert lane.received == [0, 1, 2, 3, 4, 5]


def test_two_processes_of_one_name_do_not_disturb_each_other() -> None:
    streams = ReceiveStreams()
    lanes = [Lane(streams=streams, sender=urgent_lane(10 * n, most_kept=9)) for n in range(2)]
    for _ in range(20):
        for lane in lanes:
            lane.send()
            lane.run(for_s=0.01)
    assert all(lane.received == list(range(20)) for lane in lanes)
    assert streams.out_of_turn == 0


def test_few_messages_are_answered_while_many_are_sent_and_all_are_soon() -> None:
    lane = Lane()
    for _ in range(1000):
        lane.send()
        lane.run(for_s=0.005)
    assert lane.answers <= 52  # one in a tenth of a second
    lane.run(for_s=1.0)
    assert lane.sender.probe_s == float("inf")
    assert lane.went == 1000
    assert lane.asked <= 1


def test_what_is_kept_is_bounded_by_number_and_by_what_asks_for_an_answer() -> None:
    lane = urgent_lane(STREAM, most_kept=300)
    asking = []
    while not lane.is_full:
        asking.append(lane.number(b"head", bytes(200_000), now_s=5.0).header.asks)
    assert len(asking) == 300
    assert all(any(asking[first : first + 6]) for first in range(294))  # more than 1 MiB


def test_probes_become_rare_while_nothing_is_heard() -> None:
    lane = Lane()
    lane.send()
    for second in range(120):
        lane.now_s = float(second)
        lane.ask()
    assert 5 <= lane.asked <= 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": STREAM + 1, "expected": 0},
        {"stream": STREAM, "expected": 9},
    ],
)
def test_an_answer_that_makes_no_sense_changes_nothing(wrong: dict[str, int]) -> None:
    lane = Lane()
    lane.send()
    nonsense = Ack(follows=20, delivered_bytes=0, sent_us=10**9, **wrong)
    assert lane.sender.on_ack(nonsense, now_s=1.0) == ()
    lane.run(for_s=5.0)
    assert lane.received == [0]
