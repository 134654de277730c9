"""A link is cut between two stages that live: who sends tells, and requests go around it."""

import time
from collections.abc import Iterator

import pytest
from dispatcher_bench import drain
from test_coordinator_recovery import Bench, assert_whole, bench

from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.refusals import RequestFailed
from runtime.coordinator.serving import links_of
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import MAX_PEERS, FrameError, Kind, Message, decode, encode
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

__all__ = ["bench"]  # a fixture

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 90.0  # a bound on hanging, not a measurement
HEADER_BYTES = 20


def lost_links_message(*peers: str, generation: int) -> Message:
    return Message(kind=Kind.LOST_LINKS, generation=generation, lost_links=peers)


def cannot_reach(bench: Bench, sender: str, *peers: str) -> None:
    bench.stages.deliver(sender, lost_links_message(*peers, generation=bench.stages.generation))


def uses(request: LiveRequest, source: str, target: str) -> bool:
    return request.pipeline is not None and (source, target) in links_of(request.pipeline)


def test_requests_over_a_cut_link_go_on_around_it_and_no_others_begin_anew(bench: Bench) -> None:
    requests = [bench.submit() for _ in range(3)]
    bench.stages.step()
    over = [request for request in requests if uses(request, "a", "d")]
    assert 0 < len(over) < len(requests)
    cannot_reach(bench, "a", "d")
    cannot_reach(bench, "a", "d")  # it is said again and again
    assert not any(uses(request, "a", "d") for request in requests)
    assert [request.epoch for request in requests] == [
        1 if request in over else 0 for request in requests
    ]
    bench.run()
    for request in requests:
        assert_whole(request)
    bench.assert_everything_is_given_back()


def test_a_way_whose_last_stage_cannot_reach_its_first_is_not_taken(bench: Bench) -> None:
    cannot_reach(bench, "c", "b")
    requests = [bench.submit() for _ in range(3)]
    assert not any(uses(request, "c", "b") for request in requests)
    cannot_reach(bench, "c", "a", "b")
    later = bench.submit()
    assert uses(later, "d", "a")


def test_with_no_way_left_requests_wait_until_the_link_is_back(bench: Bench) -> None:
    request = bench.submit()
    bench.stages.step()
    cannot_reach(bench, "a", "c", "d")
    cannot_reach(bench, "b", "c")
    assert (bench.dispatcher.requests_running, bench.dispatcher.requests_waiting) == (0, 1)
    cannot_reach(bench, "b")
    assert uses(request, "b", "c")
    bench.run()
    assert_whole(request)


def test_the_report_names_the_link_that_leaves_no_way(bench: Bench) -> None:
    cannot_reach(bench, "a", "d")
    assert bench.serving.has_way(), "by b and c"
    assert "a cannot reach d at 127.0.0.1:1" in bench.serving.cut_words()
    cannot_reach(bench, "a", "c", "d")
    cannot_reach(bench, "b", "c")
    assert not bench.serving.has_way()
    assert "b cannot reach c at 127.0.0.1:1" in bench.serving.cut_words()
    waiting = bench.submit()
    bench.clock.now += 1000.0
    bench.stages.report()
    bench.dispatcher.expire()
    with pytest.raises(RequestFailed, match=r"b cannot reach c at 127\.0\.0\.1:1"):
        drain(waiting)
    cannot_reach(bench, "a", "d")
    cannot_reach(bench, "b")
    assert bench.serving.has_way()
    cannot_reach(bench, "c", "a", "b")
    cannot_reach(bench, "d", "a")
    assert not bench.serving.has_way(), "no last stage reaches a first one"


def test_a_restarted_stage_has_lost_no_link(bench: Bench) -> None:
    cannot_reach(bench, "a", "c", "d")
    cannot_reach(bench, "b", "c")
    bench.stages.restart("b")
    assert uses(bench.submit(), "b", "c")


def test_a_link_is_of_the_stage_whatever_plan_it_tells_of_it_under(bench: Bench) -> None:
    bench.stages.deliver("a", lost_links_message("c", generation=6))
    assert bench.serving.cut == {("a", "c")}


def test_strangers_cut_nothing(bench: Bench) -> None:
    cannot_reach(bench, "a", "nobody", "coordinator")
    assert bench.serving.cut == frozenset()


@pytest.mark.parametrize("peers", [(), ("a",), ("a", "b c", "d\ne", "ü")])
def test_what_is_told_is_understood(peers: tuple[str, ...]) -> None:
    message = lost_links_message(*peers, generation=3)
    assert decode(*encode(message)) == message


def test_too_many_peers_names_that_are_none_and_no_names_at_all_are_refused() -> None:
    many = map(str, range(MAX_PEERS + 1))
    with pytest.raises(FrameError, match="lost_links"):
        encode(lost_links_message(*many, generation=1))
    head, payload = encode(lost_links_message("a", generation=1))
    for nonsense in (b"", b"[]", b'{"lost_links":[1]}', b'{"lost_links":["\xff"]}'):
        with pytest.raises(FrameError):
            decode(bytes(head[:HEADER_BYTES]) + nonsense, payload)


class Process:
    """A transport and the peers it knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.keys = KeyPair.generate()
        self.transport = ZmqTransport(name=name, bind=LOOPBACK, keys=self.keys)

    @property
    def address(self) -> PeerAddress:
        return PeerAddress(
            name=self.name, endpoint=self.transport.endpoint, public_key=self.keys.public_key
        )


@pytest.fixture
def processes() -> Iterator[dict[str, Process]]:
    made = {name: Process(name) for name in ("coordinator", "a", "c")}
    for process in made.values():
        process.transport.set_peers(other.address for other in made.values())
    yield made
    for process in made.values():
        process.transport.close()


def test_a_process_tells_of_a_peer_it_sends_to_and_cannot_reach_and_of_no_other(
    processes: dict[str, Process],
) -> None:
    coordinator, a, c = processes.values()
    a.transport.watch(generation=4)
    a.transport.send("c", Message(kind=Kind.RELEASE, generation=4))
    a.transport.send("coordinator", Message(kind=Kind.RELEASE, generation=4))
    wait_for_kind(c, Kind.RELEASE)
    wait_until_heard(a, "c")
    c.transport.close()
    wait_until_lost(coordinator, {"c"})


def test_a_peer_that_left_the_plan_is_missed_no_more(processes: dict[str, Process]) -> None:
    coordinator, a, c = processes.values()
    a.transport.watch(generation=4)
    a.transport.send("c", Message(kind=Kind.RELEASE, generation=4))
    wait_until_heard(a, "c")
    c.transport.close()
    wait_until_lost(coordinator, {"c"})
    a.transport.set_peers([coordinator.address])
    wait_until_lost(coordinator, set())


def wait_until_heard(process: Process, peer: str) -> None:
    """Whoever was never there is not missed."""
    deadline_s = time.monotonic() + PATIENCE_S
    watch = process.transport._watch
    assert watch is not None
    while peer not in watch._watched or watch._watched[peer].heartbeats.heard_s is None:
        assert time.monotonic() < deadline_s, f"{peer} answers no heartbeat of {process.name}"
        time.sleep(0.01)


def wait_until_lost(coordinator: Process, peers: set[str]) -> None:
    """Until it is told of these and no others: on a busy machine another may be missed for a
    moment."""
    deadline_s = time.monotonic() + PATIENCE_S
    while set(lost := wait_for_kind(coordinator, Kind.LOST_LINKS).lost_links or ()) != peers:
        assert time.monotonic() < deadline_s, lost


def wait_for_kind(process: Process, kind: Kind) -> Message:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        for received in process.transport.receive(timeout_s=0.1):
            if received.message.kind is kind:
                return received.message
    pytest.fail(f"no {kind.name} came to {process.name}")


def test_every_coordinator_is_told_where_it_is_now(processes: dict[str, Process]) -> None:
    _, a, c = processes.values()
    moved, second = Process("coordinator"), Process("coordinator:2")
    try:
        for coordinator in (moved, second):
            coordinator.transport.set_peers([a.address])
        a.transport.watch(generation=4)
        a.transport.send("c", Message(kind=Kind.RELEASE, generation=4))
        wait_until_heard(a, "c")
        a.transport.set_peers([moved.address, second.address, c.address])
        c.transport.close()
        for coordinator in (moved, second):
            wait_until_lost(coordinator, {"c"})
    finally:
        for coordinator in (moved, second):
            coordinator.transport.close()
